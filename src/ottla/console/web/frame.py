"""The frame of every page: bar, menu, colours, age of the data, and current problems."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from nicegui import context, run, ui

from ottla.client.failure import Failed
from ottla.console.watch.attention import health
from ottla.console.web import units

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ottla.console.console import Console
    from ottla.console.watch.snapshot import Snapshot

DARK: Final = "ottla_dark"
STALE: Final = 3  # rounds without new data until the page says so
TICK_S: Final = 1.0
MENU: Final = (
    ("/", "Overview", "space_dashboard"),
    ("/brokers", "Brokers", "dns"),
    ("/topics", "Topics", "view_list"),
    ("/messages", "Messages", "mail"),
    ("/groups", "Groups", "groups"),
    ("/reassignment", "Reassignment", "swap_horiz"),
    ("/queries", "Queries", "account_tree"),
    ("/transactions", "Transactions", "receipt_long"),
    ("/access", "Access", "lock"),
    ("/zookeeper", "ZooKeeper", "forest"),
    ("/audit", "Audit", "history"),
)
STYLE: Final = """
:root{--line:#e3e7ee;--soft:#667085;--card:#fff;--good:#14804a;--warn:#b45f06;--bad:#c4261d;--note:#2f6fde}
body.body--dark{--line:#2c323b;--soft:#98a2b3;--card:#1b1f26;--good:#4cc38a;--warn:#f5a524;--bad:#ff6b61;--note:#7aa7ff}
body{background:#f5f6f8;font-feature-settings:"tnum"} body.body--dark{background:#12151a}
.q-header{background:var(--card)!important;color:inherit!important;border-bottom:1px solid var(--line)}
body.body--light .q-header{color:#101828!important} body.body--dark .q-header{color:#e6e9ef!important}
.q-drawer .q-drawer__content{gap:0!important;padding-left:0;padding-right:0}
.q-drawer{background:var(--card)!important;border-right:1px solid var(--line)}
.nicegui-content{padding:20px;max-width:1440px;margin:0 auto;width:100%;gap:16px}
.o-card{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:16px 18px;box-shadow:none;width:100%;min-width:0}
.o-title{font-size:1.35rem;font-weight:600;line-height:1.2} .o-head{font-weight:600;font-size:1rem}
.o-soft{color:var(--soft);font-size:.86rem} .o-stat{font-size:1.55rem;font-weight:600;line-height:1.15;white-space:nowrap}
.o-good{color:var(--good)} .o-warn{color:var(--warn)} .o-bad{color:var(--bad)} .o-note{color:var(--note)}
.o-mono{font-family:ui-monospace,SFMono-Regular,Menlo,monospace;font-size:.83rem}
.o-wrap{white-space:pre-wrap;overflow-wrap:anywhere} .o-dot{width:10px;height:10px;border-radius:50%;flex:none}
.o-menu{border-radius:8px;margin:1px 10px;min-height:40px;width:calc(100% - 20px);font-weight:500;text-decoration:none!important;color:inherit!important;display:flex;align-items:center;gap:12px;padding:8px 12px}
.o-menu:hover{background:rgba(127,140,160,.13)} .o-menu.on{background:rgba(47,111,222,.14);color:var(--note)!important}
.o-link{color:var(--note)!important;text-decoration:none} .o-link:hover{text-decoration:underline}
.q-table__card{background:transparent!important;box-shadow:none!important} .q-table th{font-weight:600;color:var(--soft);font-size:.8rem}
.q-table td{font-size:.88rem} .q-table td .o-link{display:inline-block;max-width:26rem;white-space:normal;overflow-wrap:anywhere} .q-table tbody td,.q-table thead th{padding:6px 8px} .q-table tbody td{height:40px} .q-table__bottom{border-top:1px solid var(--line)!important}
.o-grow{max-width:0;width:50%;overflow:hidden;text-overflow:ellipsis}
.o-grid{display:grid;gap:14px;width:100%;grid-template-columns:repeat(auto-fit,minmax(165px,1fr))}
.o-two{display:grid;gap:16px;width:100%;grid-template-columns:repeat(auto-fit,minmax(min(420px,100%),1fr))}
.o-chip{display:inline-block;border-radius:99px;padding:1px 9px;font-size:.78rem;font-weight:600;background:rgba(127,140,160,.16)}
.o-chip.o-bad{background:rgba(220,60,50,.14)} .o-chip.o-warn{background:rgba(220,140,20,.16)} .o-chip.o-good{background:rgba(30,150,90,.14)} .o-chip.o-note{background:rgba(47,111,222,.14)}
.o-banner{border-radius:10px;padding:10px 14px;width:100%;font-weight:500;background:rgba(220,60,50,.13);color:var(--bad);display:flex;gap:10px;align-items:center}
.q-btn{text-transform:none!important} .q-btn.text-primary{color:var(--note)!important} .q-btn.text-negative{color:var(--bad)!important} .q-notification__actions{color:inherit!important} .q-field--dense .q-field__label{font-size:.9rem}
@media (max-width:700px){.nicegui-content{padding:12px} .o-wide{display:none!important} .o-stat{font-size:1.25rem} .o-card{padding:12px}
 .o-grid{grid-template-columns:repeat(2,1fr);gap:8px} .q-table td,.q-table th{padding:4px 5px!important} .q-table td{font-size:.82rem} .q-table th{white-space:normal}
 .q-table td.text-left{white-space:normal;overflow-wrap:anywhere;min-width:80px} .o-grow{max-width:none;width:auto}
 .o-grow span{display:-webkit-box;-webkit-line-clamp:3;-webkit-box-orient:vertical;overflow:hidden}}
"""  # noqa: E501


@contextmanager
def frame(console: Console, title: str, path: str, *, trouble: bool = True) -> Iterator[None]:
    """A page with bar and menu; elements created inside the block are its content.

    Without `trouble` the banner only reports a cluster that does not answer: the page shows the rest itself.
    """
    request = context.client.request
    chosen = {"1": True, "0": False}.get(request.cookies.get(DARK, "") if request else "")
    ui.page_title(f"{title} · Ottla")
    ui.add_css(STYLE)
    ui.colors(primary="#2f6fde")
    dark = ui.dark_mode(chosen)
    with ui.left_drawer(value=False, bordered=False).props("width=212 breakpoint=900 show-if-above") as drawer:
        drawer.classes("q-pa-none q-pt-sm")
        for target, name, icon in MENU:
            if target == "/zookeeper" and console.options.zookeeper is None:
                continue
            on = " on" if target == path else ""
            with ui.link(target=target).classes(f"o-menu{on}"):
                ui.icon(icon, size="20px")
                ui.label(name)
    with ui.header().classes("items-center q-py-xs q-px-md gap-3 no-wrap"):
        ui.button(icon="menu", on_click=drawer.toggle).props("flat round dense color=grey").props("data-mark=menu")
        ui.label("Ottla").classes("o-head").style("font-size:1.15rem;letter-spacing:.02em")
        cluster = ui.label().classes("o-soft o-wide ellipsis")
        ui.space()
        age = ui.label().classes("o-soft o-wide").props("data-mark=age")
        dot = ui.element("div").classes("o-dot")
        with ui.button(icon="contrast").props("flat round dense color=grey").props("data-mark=theme") as button:
            ui.tooltip("Light, dark or system")
        button.on_click(lambda: switch(dark))
    with ui.element("div").classes("o-banner").props("data-mark=banner") as banner:
        ui.icon("error_outline", size="20px")
        message = ui.label()
        if path != "/":
            ui.space()
            ui.link("What to do", "/").classes("o-link no-wrap").style("white-space:nowrap")
    ui.label(title).classes("o-title o-wrap")

    def tick() -> None:
        snapshot = console.watch.snapshot
        level, sentence = health(snapshot)
        dot.style(f"background:var(--{level})")
        said = f"{snapshot.cluster or 'no cluster yet'} · {console.options.bootstrap}"
        cluster.set_text(units.brief(said, 90))
        unknown = "no answer yet" if snapshot.version else "asking…"
        age.set_text(f"as of {units.age(snapshot.taken)}" if snapshot.taken else unknown)
        told = banner_text(snapshot, sentence if level == "bad" and trouble else "")
        banner.set_visibility(bool(told))
        message.set_text(told)

    tick()
    ui.timer(TICK_S, tick)
    yield


def banner_text(snapshot: Snapshot, bad: str) -> str:
    late = time.monotonic() - snapshot.taken if snapshot.taken else 0.0
    if snapshot.problem and snapshot.taken:
        return f"The cluster does not answer ({snapshot.problem}). The data shown is {units.span(late)} old."
    if snapshot.taken and late > STALE * snapshot.every_s + 8:
        return f"No new data for {units.span(late)}: the cluster answers slowly, or not at all."
    return bad


def switch(dark: Any) -> None:
    """Switch to the next theme: system, dark, light."""
    following: dict[bool | None, bool | None] = {None: True, True: False, False: None}
    dark.value = following[dark.value]
    kept = {None: "", True: "1", False: "0"}[dark.value]
    ui.run_javascript(f"document.cookie='{DARK}={kept};path=/;max-age=31536000;SameSite=Strict'")


def live(console: Console, update: Callable[[Snapshot], None]) -> Callable[[], None]:
    """Call `update` with every new snapshot while the page is open; the returned function calls it at once."""
    seen = -1

    def tick() -> None:
        nonlocal seen
        snapshot = console.watch.snapshot
        if snapshot.version != seen:
            seen = snapshot.version
            update(snapshot)

    def again() -> None:
        nonlocal seen
        seen = -1
        tick()

    tick()
    ui.timer(TICK_S, tick)
    return again


def user() -> str:
    """The user of this page, as the guard authenticated it."""
    request = context.client.request
    return str(request.scope.get("ottla_user", "local")) if request else "local"


async def attempt(work: Callable[..., Any], *arguments: Any, done: str = "", **named: Any) -> tuple[bool, Any]:
    """Run slow work in a thread and notify the user of the result. Returns whether it worked, and its result."""
    try:
        result = await run.io_bound(work, *arguments, **named)
    except Failed as error:
        ui.notify(str(error), type="negative", multi_line=True, close_button="OK", timeout=0)
        return False, None
    if done:
        ui.notify(done, type="positive")
    return True, result


class StatCard:
    """A number with a name."""

    def __init__(self, label: str) -> None:
        with ui.element("div").classes("o-card"):
            ui.label(label).classes("o-soft")
            self._value = ui.label("—").classes("o-stat")
            self._note = ui.label("").classes("o-soft ellipsis")

    def set(self, value: str, note: str = "", tone: str = "") -> None:
        self._value.set_text(value)
        self._value.classes(replace=f"o-stat {tone}")
        self._note.set_text(note)


def chip(text: str, tone: str = "") -> ui.label:
    return ui.label(text).classes(f"o-chip {tone}")


def empty(text: str, icon: str = "inbox") -> None:
    with ui.column().classes("items-center w-full q-pa-lg gap-2"):
        ui.icon(icon, size="36px").classes("o-soft")
        ui.label(text).classes("o-soft text-center")


async def sure(question: str, yes: str, *, typed: str = "") -> bool:
    """Ask for confirmation; with `typed`, the user must type that text."""
    with ui.dialog() as dialog, ui.card().classes("o-card").style("max-width:460px"):
        ui.label(question).classes("o-wrap")
        confirm = ui.input(f"Type {typed} to confirm").classes("w-full").props("data-mark=confirm") if typed else None
        with ui.row().classes("w-full justify-end"):
            ui.button("Cancel", on_click=lambda: dialog.submit(False)).props("flat")
            ui.button(yes, on_click=lambda: dialog.submit(confirm is None or confirm.value == typed)).props(
                "color=negative unelevated"
            ).props("data-mark=sure")
    answer = await dialog
    dialog.delete()
    if answer is False and confirm is not None and confirm.value and confirm.value != typed:
        ui.notify("Not done: the name does not match.", type="warning")
    return bool(answer)
