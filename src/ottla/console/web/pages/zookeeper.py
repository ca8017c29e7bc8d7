"""ZooKeeper: the tree of the cluster's znodes, read-only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nicegui import run, ui

from ottla.client.failure import Failed
from ottla.console.web import units
from ottla.console.web.frame import empty, frame
from ottla.console.znodes import Node, Tree

if TYPE_CHECKING:
    from ottla.console.console import Console

PATH_MAX = 1000
RETRY_S = 3.0


def add(console: Console) -> None:
    tree = Tree(console.options.zookeeper) if console.options.zookeeper else None

    @ui.page("/zookeeper")
    def zookeeper() -> None:
        with frame(console, "ZooKeeper", "/zookeeper"):
            if tree is None:
                empty("Start the console with --zookeeper host:port to see the tree.", "forest")
            else:
                Browser(tree)


class Browser:
    """Reads each level when it is opened."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._known: dict[str, dict[str, Any]] = {}
        self._opened: set[str] = set()
        root: dict[str, Any] = {"id": "/", "label": "/", "children": []}
        self._known["/"] = root
        with ui.element("div").classes("o-two"):
            with ui.element("div").classes("o-card"):
                self._view = ui.tree([root], on_select=self._select, on_expand=self._expand).props("data-mark=znodes")
                self._view.props("no-transition")
            with ui.element("div").classes("o-card"):
                self._path = ui.label("Choose a znode.").classes("o-head o-wrap")
                self._facts = ui.label().classes("o-soft")
                self._data = ui.label().classes("o-mono o-wrap").props("data-mark=znode-data")
        self._begin = ui.timer(RETRY_S, self._open_root, immediate=True)

    async def _node(self, path: str) -> Node | None:
        try:
            return await run.io_bound(self._tree.node, path)
        except Failed as error:
            ui.notify(str(error), type="negative")
            return None

    async def _open_root(self) -> None:
        """Until it succeeds: without the root there is nothing to click on."""
        await self._open("/")
        if "/" in self._opened:
            self._begin.deactivate()

    async def _open(self, path: str) -> None:
        """Read one level; deeper levels are read when they are opened."""
        here = self._known.get(path)
        node = await self._node(path) if here is not None else None
        if here is None or node is None:
            return
        here["children"] = []
        for name in node.children:
            child = path.rstrip("/") + "/" + name
            self._known[child] = self._known.get(child) or {"id": child, "label": name, "children": placeholder(child)}
            here["children"].append(self._known[child])
        if node.more:
            here["children"].append({"id": f"{path}#more", "label": f"… {node.more:,} more"})
        self._opened.add(path)
        self._view.props["nodes"] = [copy_tree(self._known["/"])]
        self._view.update()
        if path == "/":
            self._view.expand(["/"])

    async def _expand(self, event: Any) -> None:
        for path in event.value or []:
            if path in self._known and path not in self._opened:
                await self._open(path)

    async def _select(self, event: Any) -> None:
        path = str(event.value or "")[:PATH_MAX]
        if path not in self._known:
            return
        node = await self._node(path)
        if node is None:
            return
        await self._open(path)
        self._path.set_text(path)
        kind = "ephemeral, " if node.ephemeral else ""
        self._facts.set_text(
            f"{kind}version {node.version}, {units.size(node.size)}, {len(node.children) + node.more:,} children"
        )
        self._data.set_text(node.data or "(empty)")


def placeholder(path: str) -> list[dict[str, Any]]:
    """A placeholder for children that are not read yet."""
    return [{"id": f"{path}#", "label": "…"}]


def copy_tree(node: dict[str, Any]) -> dict[str, Any]:
    return {**node, "children": [copy_tree(one) for one in node.get("children", ())]}
