"""What ``%gpu`` shows: one card as HTML for notebooks and as text for consoles. Pure: JSON of the service in, text out.

Words and shapes are those of the sidebar. Blue is this notebook, grey others; a value that was not read is ``–``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from ..units import GIB, about, ordinal, place, plural
from .names import honest, look_name, term_name
from .words import __, _n, number, say

Json = dict[str, Any]

CELLS = 20  # characters of the share bar in a console
SHOWN_TERMS = 3
SQUARES_MAX = 12
BLOCKS = "▁▂▃▄▅▆▇█"

_LINE = 'fill="none" stroke="currentColor"'
_CIRCLE = f'<circle cx="7" cy="7" r="5.5" {_LINE} stroke-width="1.5"/>'
_BOX = '<rect x="1" y="1" width="12" height="12" rx="2.5" fill="none" stroke="currentColor" stroke-width="1.6"'
_BARS = f'<path d="M5.2 4.6v4.8M8.8 4.6v4.8" {_LINE} stroke-width="1.8"/>'
_SHAPES = {
    "waiting": f'{_CIRCLE}<path d="M7 3.8V7l2.3 1.5" {_LINE} stroke-width="1.5" stroke-linecap="round"/>',
    "bound": _CIRCLE,
    "active": '<circle cx="7" cy="7" r="6" fill="currentColor"/>',
    "idle": f'{_CIRCLE}<path d="M7 1.7a5.3 5.3 0 0 0 0 10.6z" fill="currentColor"/>',
    "parking": f'{_BOX} stroke-dasharray="3 1.6"/>{_BARS}',
    "parked": f"{_BOX}/>{_BARS}",
    "resuming": f'<path d="M12.3 8.2A5.4 5.4 0 1 1 10.9 3.2" {_LINE} stroke-width="1.7"/>'
    '<path d="M13.4 1.2v4.4H9z" fill="currentColor"/>',
    "none": f'<circle cx="7" cy="7" r="5.3" {_LINE} stroke-width="1.5" stroke-dasharray="2 2"/>',
    "lost": '<path d="m7 .6 6.4 6.4L7 13.4.6 7z" fill="currentColor"/>',
    "dead": f'<path d="m2.6 2.6 8.8 8.8m0-8.8-8.8 8.8" {_LINE} stroke-width="2" stroke-linecap="round"/>',
    "refused": f'{_CIRCLE}<path d="M4.2 7h5.6" {_LINE} stroke-width="1.8"/>',
    "warned": '<path d="M7 1 13.4 12.6H.6z" fill="currentColor"/>',
}
_ARROW = (
    '<svg data-s="next" viewBox="0 0 14 14" aria-hidden="true">'
    f'<path d="M1.5 7h9M7 3l4 4-4 4" {_LINE} stroke-width="1.5"/></svg>'
)


@dataclass(frozen=True, slots=True)
class Card:
    """One output: rich where a notebook shows it, text where a console does."""

    html: str
    text: str

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"text/html": self.html, "text/plain": self.text}

    def __repr__(self) -> str:
        return self.text


def _mode(device: Json) -> str:
    """The device's sharing mode, with what weakens it."""
    weak = device["sharing"] in ("mps", "exclusive") and device.get("enforced") == "target"
    return f"{device['sharing']} weakly" if weak else device["sharing"]


def note(look: str, strong: str, rest: str = "", code: str = "") -> Card:
    """One sentence with its glyph; `code` is what undoes it."""
    html = f'<div class="line">{_glyph(look)}<span><b>{escape(strong)}</b> {escape(rest)}{_code(code)}</span></div>'
    return _card(html, " ".join(part for part in (strong, rest, code) if part))


def pool(seen: Json) -> Card:
    """A pool: how many GPUs, where, and what is going on there."""
    looks = {"waiting": "waiting", "ready": "idle", "running": "active", "ended": "dead"}
    where = ", ".join(__("%1 on %2", len(one["devices"]), one["server"]) for one in seen["members"])
    strong = _n("Pool of %1 GPU.", "Pool of %1 GPUs.", seen["gpus"])
    said = {"ready": __("%1. Nothing runs there.", where), "running": __("%1. Its processes run.", where)}
    rest = said.get(seen["state"]) or say(seen["message"])
    return note(looks[seen["state"]], strong, rest, "" if seen["state"] == "ended" else "%gpu pool end")


def status(session: Json, cluster: Json, mask: str = "") -> Card:
    """The session's own share: where, how much, what it uses, what is next. `mask` names what is ``cuda:0`` here."""
    state, found = session["state"], _devices(cluster)
    mine = [(one, *found.get(one["uuid"], (None, None))) for one in session["devices"]]
    look = "warned" if session.get("reclaim_in_s") is not None else state
    head, plain_head = _sentence(session, mine)
    sharing = next((_mode(device) for _, device, _ in mine if device), None)
    simulated = __("simulated") if cluster.get("simulated") else ""
    chip = f'<span class="chip">{simulated}</span>' if simulated else ""
    meant = honest(sharing or "")
    means = f'<span class="small muted">{escape(meant)}</span>' if meant else ""
    html = [f'<div class="line">{_glyph(look)}<span class="say">{head}</span>{chip}{means}</div>']
    text = [plain_head + (f"   {simulated}" if simulated else "")]
    if state == "waiting":
        ahead, behind = _around(session, cluster)
        bar, line = _line_of(session, ahead, behind)
        html.append(bar)
        text.append(line)
    elif mine:
        bar, line = _shares(session, [one["share"] for one, _, _ in mine])
        html.append(bar)
        text.append(line)
    if mine:
        facts = _facts(session, mine, mask)
        cells = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value, _ in facts)
        html.append(f"<dl>{cells}</dl>")
        text.append("   ".join(short for _, _, short in facts))
    following = _next(session, cluster)
    if following:
        html.append(f"<p>{_ARROW}<span>{escape(following)}</span></p>")
        text.append(f"{__('next')}   {following}")
    return _card("".join(html), "\n".join(text))


def why(answer: Json, session: Json, cluster: Json) -> Card:
    """The terms that chose its device, the heaviest first, and the next best device with what decided."""
    terms = sorted(answer["terms"], key=lambda term: (-abs(_weighed(term) or 0.0), term["name"]))
    found = _devices(cluster)
    where = _and([_where(found, one["uuid"]) for one in session["devices"]]) or __("No GPU now")
    if not terms:
        return note(session["state"], f"{where}.", __("Nothing was chosen yet: it is when a cell needs a GPU."))
    rows = [(term_name(term["name"]), _weighed(term), say(term["text"])) for term in terms[:SHOWN_TERMS]]
    if terms[SHOWN_TERMS:]:
        rest = sum(_weighed(term) or 0.0 for term in terms[SHOWN_TERMS:])
        more = _n("%1 more term", "%1 more terms", len(terms) - SHOWN_TERMS)
        rows.append((more, rest, __("see the panel")))
    most = max(0.01, *(abs(value or 0.0) for _, value, _ in rows))
    cells = "".join(
        f'<span>{escape(name)}</span><span class="bar" aria-hidden="true">'
        f"<span{' class=against' if (value or 0) < 0 else ''}"
        f' style="inline-size:{100 * abs(value or 0) / most:.0f}%"></span></span><b>{_signed(value)}</b>'
        f'<span class="muted">{escape(said)}</span>'
        for name, value, said in rows
    )
    fitness = sum(_weighed(term) or 0.0 for term in terms)
    closing = __("Fitness %1", number(f"{fitness:.2f}")) + "".join(
        __(", next best %1 (%2: %3)", number(f"{one['fitness']:.2f}"), _where(found, one["device"]), say(one["text"]))
        for one in answer["alternatives"][:1]
    )
    html = f'<b>{escape(where)}</b><div class="terms">{cells}</div><p class="small muted">{escape(closing)}.</p>'
    width = max(len(name) for name, _, _ in rows)
    lines = [f"{name:<{width}}  {_signed(value):>6}  {said}" for name, value, said in rows]
    return _card(html, "\n".join([where, *lines, f"{closing}."]))


def waiting(answer: Json, waited_s: float = 0.0, code: str = "") -> Card:
    """A wait as it goes: the service's own sentence, and how long it has lasted."""
    said = say(
        answer.get("message")
        or f"Waiting for a GPU, {place(answer.get('queue_position'))}, {about(answer.get('eta_s'))}."
    )
    so_far = __("%1 so far", _lasted(waited_s)) if waited_s >= 1 else ""
    html = (
        f'<div class="line" role="status">{_glyph("waiting")}<span class="say">{escape(said)}{_code(code)}</span>'
        f'<span class="small muted">{so_far}</span></div>'
    )
    return _card(html, f"{said}{f'  ({so_far})' if so_far else ''}")


def history(answer: Json) -> Card:
    """Share and use over time as two lines of blocks, a gap where nothing was read, and GPU time by day."""
    series = answer.get("series") or []
    if not series:
        return note("none", __("No history yet."), __("It begins with the first cell that uses a GPU."))
    named = ((__("share"), "share"), (__("busy"), "utilization"))
    rows = [(name, _blocks([point[key] for point in series])) for name, key in named]
    width = max(len(name) for name, _ in rows)
    days = ", ".join(f"{day}: {charged(used)}" for day, used in sorted(answer.get("by_day", {}).items()))
    span = _lasted(answer["until"] - answer["since"])
    html = "".join(
        f'<div class="line"><span class="muted" style="inline-size:{width}ch">{name}</span><code>{line}</code></div>'
        for name, line in rows
    )
    html += f'<p class="small muted">{escape(__("The last %1. %2", span, days))}</p>'
    lines = [f"{name:<{width + 1}} {line}" for name, line in rows]
    return _card(html, "\n".join([*lines, f"{__('the last %1', span)}   {days}".rstrip()]))


# --- words ---


def percent(fraction: float | None) -> str:
    return "–" if fraction is None else __("%1%", f"{100 * fraction:.0f}")


def charged(gpu_s: float | None) -> str:
    """``1.4 GPU-h``, ``90 GPU-s`` below a tenth of an hour."""
    if gpu_s is None:
        return "–"
    return number(f"{gpu_s:.0f}") + " GPU-s" if gpu_s < 360 else number(f"{gpu_s / 3600:.1f}") + " GPU-h"


def model_name(model: str) -> str:
    """``A100 80GB`` of ``NVIDIA A100-SXM4-80GB``."""
    name = re.sub(r"[-\s]+", " ", model)
    name = re.sub(r"\b(NVIDIA|Tesla|GeForce|Graphics|Device)\b\s*", "", name, flags=re.I)
    return re.sub(r"\s*\b(SXM\d*|PCIe|HBM\d\w?|NVL)\b", "", name, flags=re.I).strip()


def gib(size: float | None) -> str:
    return "–" if size is None else number(f"{size / GIB:.1f}" if size / GIB < 99.95 else f"{size / GIB:.0f}")


def _weighed(term: Json) -> float | None:
    """What a term adds to the fitness; None: it was not read."""
    return None if term["value"] is None else term["value"] * term["weight"]


def _signed(value: float | None) -> str:
    if value is None:
        return "–"
    size = f"{abs(value):.2f}"
    return number(size if float(size) == 0 else f"{'−' if value < 0 else '+'}{size}")


def _lasted(seconds: float) -> str:
    minutes, rest = divmod(int(max(0.0, seconds)), 60)
    if minutes == 0:
        return __("%1 s", rest)
    if minutes < 90:
        return __("%1 min %2 s", minutes, rest) if minutes < 10 else __("%1 min", minutes)
    return __("%1 h", minutes // 60) if minutes < 48 * 60 else _n("%1 day", "%1 days", minutes // 1440)


def _blocks(values: list[float | None]) -> str:
    return "".join(" " if v is None else BLOCKS[min(7, max(0, int(v * 8)))] for v in values[-60:])


# --- parts of a card ---


@cache
def _style() -> str:
    return f"<style>{(Path(__file__).parent / 'card.css').read_text()}</style>"


def _card(html: str, text: str) -> Card:
    label = escape(__("GPU share of this notebook"))
    return Card(f'{_style()}<div class="gpushare-out" role="group" aria-label="{label}">{html}</div>', text)


def _glyph(look: str) -> str:
    label, shape = escape(look_name(look)), _SHAPES.get(look, _CIRCLE)
    return f'<svg data-s="{escape(look)}" viewBox="0 0 14 14" role="img" aria-label="{label}">{shape}</svg>'


def _code(code: str) -> str:
    return f" <code>{escape(code)}</code>" if code else ""


def _devices(cluster: Json) -> dict[str, tuple[Json, Json]]:
    """(device, server) by uuid."""
    return {d["uuid"]: (d, server) for server in cluster.get("servers", ()) for d in server["devices"]}


def _where(found: dict[str, tuple[Json, Json]], uuid: str) -> str:
    device, server = found.get(uuid, (None, None))
    return __("GPU %1 on %2", device["index"], server["name"]) if device and server else f"GPU {uuid[:12]}"


def _and(names: list[str]) -> str:
    return __(" and ").join(names)


def _rich(text: str) -> str:
    """As HTML: what stands between two asterisks is bold."""
    return re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", escape(text))


def _sentence(session: Json, mine: list[Any]) -> tuple[str, str]:
    """What is true now, as HTML and for a console."""
    state = session["state"]
    names = [f"GPU {device['index']}" if device else f"GPU {one['uuid'][:12]}" for one, device, _ in mine]
    device, server = (mine[0][1], mine[0][2]) if mine else (None, None)
    details = [model_name(device["model"]), server["name"]] if device and server else []
    plain = "  ".join([" ".join(names), *details, "    ", look_name(state).lower()]) if mine else ""
    where = _and(names), "".join(f", {one}" for one in details)
    on = {
        "active": __("Computing on **%1**%2", *where),
        "bound": __("Ready on **%1**%2", *where),
        "idle": __("Idle on **%1**%2", *where),
        "resuming": __("Coming back to **%1**%2", *where),
    }.get(state)
    if on and mine:
        return _rich(on), plain
    if state == "waiting":
        demand = session["demand"]
        amount = say(plural(int(-(-demand["gpus"] // 1)), "GPU") if demand["gpus"] >= 1 else "a GPU")
        model = demand["constraints"]["model"]
        said = __("Waiting for **%1**%2", amount, __(", any %1", model) if model else "")
        return _rich(said), said.replace("**", "")
    said = say(session["message"])
    return escape(said), plain or said


def _shares(session: Json, shares: list[float]) -> tuple[str, str]:
    """The share bar, one for each device; the big number is their sum."""
    least, limit, total = session["guarantee"], session["limit"], sum(shares)
    big = percent(total) if len(shares) == 1 else __("%1 of %2", number(f"{total:.2g}"), len(shares))
    spoken = escape(__("%1, guaranteed %2, up to %3", big, percent(least), percent(limit)))
    label = escape(__("Share of the GPU"))
    bars = "".join(
        f'<div class="share" role="meter" aria-label="{label}" aria-valuemin="0" aria-valuemax="100"'
        f' aria-valuenow="{100 * share:.0f}" aria-valuetext="{spoken}">'
        f'<span class="limit" style="inline-size:{100 * limit:.0f}%"></span>'
        f'<span class="now" style="inline-size:{100 * share:.0f}%"></span>'
        f'<span class="least" style="inset-inline-start:{100 * least:.0f}%"></span></div>'
        for share in shares
    )
    html = (
        f'<div class="big">{bars}<strong>{big}</strong></div>'
        f'<div class="ends"><span>{__("%1 guaranteed", percent(least))}</span>'
        f"<span>{__('may grow to %1', percent(limit))}</span></div>"
    )
    tick = round(least * CELLS)
    drawn = []
    for share in shares:
        bar = ("#" * round(share * CELLS)).ljust(CELLS, ".")
        drawn.append(f"|{bar[:tick]}|{bar[tick:]}|" if 0 < tick < CELLS else f"|{bar}|")
    ends = __("guaranteed %1, up to %2", percent(least), percent(limit))
    return html, f"{__('share')}  {' '.join(drawn)}  {big}   {ends}"


def _facts(session: Json, mine: list[Any], mask: str) -> list[tuple[str, str, str]]:
    """Name, value, and both as a console says it."""
    facts, visible = [], [one for one in mask.split(",") if one]
    used = _sum(one["memory_used"] for one, _, _ in mine)
    total = _sum(device["memory_total"] if device else None for _, device, _ in mine)
    of = __("%1 of %2 GiB", gib(used), "–" if total is None else round(total / GIB))
    facts.append((__("GPU memory"), of, __("memory %1", of)))
    busy = [one["utilization"] for one, _, _ in mine]
    mean = None if None in busy else sum(busy) / len(busy)
    facts.append((__("Busy"), percent(mean), __("busy %1", percent(mean))))
    neighbours = sum(len(device["other_shares"]) for _, device, _ in mine if device)
    facts.append((__("Neighbours"), str(neighbours), _n("%1 neighbour", "%1 neighbours", neighbours)))
    used_s = charged(session["charged_gpu_s"])
    facts.append((__("Charged"), used_s, __("charged %1", used_s)))
    here = [
        f"cuda:{visible.index(name)}"
        for one, device, _ in mine
        if (name := one["uuid"] if one["uuid"] in visible else str(device["index"]) if device else "") in visible
    ]
    if here:
        facts.append((__("In this kernel"), ", ".join(here), __("here %1", ", ".join(here))))
    return facts


def _sum(values: Any) -> float | None:
    """None as soon as one is unknown."""
    known = list(values)
    return None if not known or None in known else sum(known)


def _around(session: Json, cluster: Json) -> tuple[int, int] | tuple[None, None]:
    position, length = session["queue_position"], len(cluster.get("queue", ()))
    return (None, None) if position is None else (position - 1, max(0, length - position))


def _line_of(session: Json, ahead: int | None, behind: int | None) -> tuple[str, str]:
    """The line itself instead of a bar."""
    eta, position = escape(say(about(session["eta_s"]))), session["queue_position"]
    if ahead is None or behind is None:
        return f'<div class="ends"><span>{__("In line")}</span><span>{eta}</span></div>', f"{__('line')}   {eta}"
    said, nth = __("%1 ahead of you, %2 behind", ahead, behind), say(ordinal(position))
    squares = ""
    if ahead + behind < SQUARES_MAX:
        squares = "<span></span>" * ahead + '<span class="me"></span>' + '<span class="after"></span>' * behind
    html = (
        f'<div class="big"><div class="queue" role="img" aria-label="{said}">{squares}</div>'
        f"<strong>{nth}</strong></div>"
        f'<div class="ends whole"><span>{said}</span><span>{eta}</span></div>'
    )
    return html, f"{__('line')}   {nth}, {said}   {eta}"


def _next(session: Json, cluster: Json) -> str:
    """What comes next; a notice of reclaim says its reason first. Empty where the sentence above has said it."""
    following, state = session.get("next") or {}, session["state"]
    if state in ("parked", "parking", "none", "dead") and following.get("code") in ("cell", "parked", "ask", "leave"):
        return ""
    said = say(following.get("text") or "")
    if session.get("reclaim_in_s") is not None:
        return f"{say(session['message'])} {said}"
    if state == "active":
        waiting = cluster["summary"]["waiting"]
        return f"{said} {__('Nobody is waiting.') if waiting == 0 else __('%1 waiting.', waiting)}"
    return said
