"""Plots of the history. The browser draws them on a canvas, so that names in them are never markup."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from nicegui import run, ui

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ottla.console.history import Point

GREY: Final = "#8a94a6"
LINE: Final = "rgba(127,140,160,.22)"
COLOURS: Final = ["#2f6fde", "#e0823d", "#2ba471", "#9b5de5", "#d6456b", "#0ea5b7"]
SPANS: Final = {"15 min": 900, "1 h": 3_600, "6 h": 21_600, "1 day": 86_400, "7 days": 604_800}
REFRESH_S: Final = 5.0


class Plot:
    """A line chart of points. `read` gets the seconds to go back, and runs in a thread."""

    def __init__(
        self,
        title: str,
        read: Callable[[int], Sequence[Point]],
        lines: Sequence[tuple[str, Callable[[Point], float | None]]],
        *,
        unit: str = "",
        height: int = 210,
        span: str = "15 min",
    ) -> None:
        self._read = read
        self._lines = lines
        self._span = SPANS[span]
        with ui.element("div").classes("o-card"):
            with ui.row().classes("items-center w-full justify-between no-wrap"):
                ui.label(title).classes("o-head")
                ui.select(list(SPANS), value=span, on_change=self._choose).props("dense borderless options-dense")
            self.chart = ui.echart(self._options(unit)).classes("w-full").style(f"height:{height}px")
            self._nothing = ui.label("No data yet: one point is added every ten seconds.").classes("o-soft")
        ui.timer(0.1, self.update, once=True)
        ui.timer(REFRESH_S, self.update)

    async def _choose(self, event: Any) -> None:
        self._span = SPANS.get(event.value, 900)
        await self.update()

    async def update(self) -> None:
        points = await run.io_bound(self._read, self._span)
        if points is None:
            return
        for series, (_, value) in zip(self.chart.options["series"], self._lines, strict=True):
            series["data"] = [[point.at * 1000, round_value(value(point))] for point in points]
        self._nothing.set_visibility(len(points) < 2)
        self.chart.update()

    def _options(self, unit: str) -> dict[str, Any]:
        return {
            "color": COLOURS,
            "animation": False,
            "grid": {
                "left": 8,
                "right": 26,
                "top": 34 if len(self._lines) > 1 else 14,
                "bottom": 4,
                "containLabel": True,
            },
            "legend": {
                "show": len(self._lines) > 1,
                "top": 0,
                "left": 0,
                "textStyle": {"color": GREY},
                "icon": "roundRect",
            },
            "tooltip": {"trigger": "axis", "renderMode": "richText", "confine": True},
            "xAxis": {
                "type": "time",
                "axisLine": {"lineStyle": {"color": LINE}},
                "axisLabel": {
                    "color": GREY,
                    "hideOverlap": True,
                    "alignMinLabel": "left",  # else it would overlap the 0 of the other axis
                    "formatter": {"day": "{MMM} {d}"},
                },
            },
            "yAxis": {
                "type": "value",
                "min": 0,
                "name": "",
                "splitNumber": 4,
                "axisLabel": {
                    "color": GREY,
                    ":formatter": f"v=>(v>=1e9?v/1e9+' G':v>=1e6?v/1e6+' M':v>=1e3?v/1e3+' k':v)+'{unit}'",
                },
                "splitLine": {"lineStyle": {"color": LINE}},
            },
            "series": [
                {
                    "name": name,
                    "type": "line",
                    "showSymbol": False,
                    "data": [],
                    "lineStyle": {"width": 2},
                    "areaStyle": {"opacity": 0.08},
                }
                for name, _ in self._lines
            ],
        }


def round_value(value: float | None) -> float | None:
    return None if value is None else round(value, 2)
