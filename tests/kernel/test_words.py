"""%gpu in the person's language: which one that is, that nothing of it stays English, and that it fails to English."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import jupyter_gpushare
from jupyter_gpushare.kernel import help as form_help
from jupyter_gpushare.kernel import magics, render, words
from tests.kernel.service import CLUSTER, SESSION, UUID, WAITS, WHY, Service
from tests.kernel.test_magics import data
from tests.kernel.test_magics import words as read

ENGLISH = "share  |##|########..........|  50%   guaranteed 10%, up to 100%"
GERMAN = "Anteil  |##|########..........|  50\u00a0%   garantiert 10\u00a0%, bis zu 100\u00a0%"


@pytest.fixture
def speaks(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes these variables, and no others, say the language."""

    def said(**variables: str) -> None:
        for name in words.LANGUAGES:
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return said


@pytest.fixture
def german(speaks: Callable[..., None]) -> None:
    speaks(GPUSHARE_LANGUAGE="de_DE")


@pytest.mark.parametrize(
    ("variables", "line"),
    [
        ({}, ENGLISH),
        ({"GPUSHARE_LANGUAGE": "de_DE"}, GERMAN),
        ({"GPUSHARE_LANGUAGE": "de-DE"}, GERMAN),
        ({"GPUSHARE_LANGUAGE": "en", "LANG": "de_DE.UTF-8"}, ENGLISH),  # JupyterLab's comes before the locale
        ({"GPUSHARE_LANGUAGE": "fr_FR", "LANG": "de_DE.UTF-8"}, ENGLISH),  # and what nobody translated is English
        ({"LANG": "de_DE.UTF-8"}, GERMAN),
        ({"LANG": "de"}, GERMAN),
        ({"LC_ALL": "de_AT@euro", "LANG": "C"}, GERMAN),
        ({"LANGUAGE": "fr:de:en", "LANG": "C.UTF-8"}, GERMAN),
        ({"LANGUAGE": "en:de"}, ENGLISH),
        ({"LC_ALL": "C.UTF-8", "LANG": "de_DE"}, ENGLISH),
        ({"LANG": "../../etc"}, ENGLISH),
        ({"LANG": "*"}, ENGLISH),
    ],
)
def test_the_language_is_jupyterlabs_else_the_processs_else_english(
    speaks: Callable[..., None], variables: dict[str, str], line: str
) -> None:
    speaks(**variables)
    assert render.status(SESSION, CLUSTER, UUID).text.splitlines()[1] == line


def test_gpu_shows_the_share_in_german(german: None, shell: Any) -> None:
    shell.run_cell("%gpu")
    card = data(shell)
    assert read(card["text/html"]).replace("\u00a0", " ") == (
        "Rechnet auf GPU 2 , A100 80GB, alpha Zeitscheiben: ein Ziel, keine Wand 50 % 10 % garantiert bis 100 % möglich"
        " GPU-Speicher 31,2 von 80 GiB Auslastung 86 % Nachbarn 1 Angerechnet 1,4 GPU-h In diesem Kernel cuda:0"
        " Wächst, wenn andere auf dieser GPU pausieren. Niemand wartet."
    )
    assert card["text/plain"].replace("\u00a0", " ").splitlines() == [
        "GPU 2  A100 80GB  alpha        rechnet",
        "Anteil  |##|########..........|  50 %   garantiert 10 %, bis zu 100 %",
        "Speicher 31,2 von 80 GiB   86 % ausgelastet   1 Nachbar   angerechnet 1,4 GPU-h   hier cuda:0",
        "danach   Wächst, wenn andere auf dieser GPU pausieren. Niemand wartet.",
    ]
    assert 'aria-label="GPU-Anteil dieses Notebooks"' in card["text/html"]


def test_a_wait_a_refusal_and_a_mistake_are_german_too(
    german: None, shell: Any, service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    assert render.waiting(WAITS, 75.0).text == (
        "Wartet auf eine GPU, 3. in der Reihe, etwa 4 min. Die Zelle startet von selbst.  (bisher 1 min 15 s)"
    )
    refused = {"message": "You asked for 4 GPUs; your limit is 2. You keep the 1 you have.", "reason": "over_limit"}
    service.answers["POST sessions/k1/request"] = (409, refused)
    shell.run_cell("%gpu request 4")
    assert data(shell)["text/plain"] == (
        "Nicht gewährt. Sie haben 4 GPUs angefordert; Ihre Grenze ist 2. Sie behalten die 1, die Sie haben."
    )
    for line, said in (
        ("why not", "'not' ist ein Wort zu viel."),
        ("request 1 --memory huge", "memory: 'huge' ist keine Größe wie 20GiB."),
        ("near", "near: Ein Pfad zu Daten oder session:<id> fehlt."),
        ("pool 2 --engine ray", "engine: 'ray' ist nicht bekannt; es gibt dask, torchrun."),
    ):
        shell.run_cell(f"%gpu {line}")
        written = capsys.readouterr()
        assert (written.out + written.err).strip() == f"UsageError: %gpu: {said}"


def test_help_is_german_and_names_the_same_forms(
    speaks: Callable[..., None], shell: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    speaks()
    english = form_help.text().splitlines()
    speaks(GPUSHARE_LANGUAGE="de_DE")
    german = form_help.text().splitlines()
    assert [line[:25] for line in german[2:]] == [line[:25] for line in english[2:]]
    assert not {line[25:] for line in german if line[25:]} & {line[25:] for line in english}
    shell.run_cell("%gpu?")
    assert "Die GPU dieses Notebooks: ansehen" in capsys.readouterr().out


def test_the_python_api_raises_english_for_scripts(german: None, shell: Any) -> None:
    from jupyter_gpushare.errors import BadDemand

    with pytest.raises(BadDemand, match="is not a size such as 20GiB"):
        jupyter_gpushare.session().request(1, memory="huge")


@pytest.mark.parametrize(
    ("english", "german"),
    [
        ("Grows when others on this GPU pause.", "Wächst, wenn andere auf dieser GPU pausieren."),
        ("Computing on GPU 2, alpha and GPU 3, alpha.", "Rechnet auf GPU 2, alpha und GPU 3, alpha."),
        ("3rd in line", "3. in der Reihe"),
        ("less free compute: 1,194 of 2,312 TFLOP/s", "weniger freie Rechenleistung: 1.194 von 2.312 TFLOP/s"),
        (
            "Waiting for 2 GPUs, any A100 80GB, 3rd in line, about 4 min.",
            "Wartet auf 2 GPUs, beliebige A100 80GB, 3. in der Reihe, etwa 4 min.",
        ),
        (
            "Parked. 6.1 GiB of GPU memory rest in host memory. Run a cell and they come back.",
            "Geparkt. 6,1 GiB GPU-Speicher liegen im Hauptspeicher. Führen Sie eine Zelle aus, dann kommen sie zurück.",
        ),
        (
            "Started without a GPU. None was free in time. Your place in line is kept."
            " It is used as soon as it is free.",
            "Ohne GPU gestartet. Keine wurde rechtzeitig frei. Ihr Platz in der Warteschlange bleibt."
            " Sie wird genutzt, sobald sie frei ist.",
        ),
        ("What a newer service says, and of which no catalogue knows.",) * 2,
        ("The end of the world is near. It is 3.5 km away.",) * 2,
        ("",) * 2,
        ("a: b. " * 1_800,) * 2,  # looked through it took seconds
    ],
)
def test_what_the_service_said_in_english_is_said_in_german(
    speaks: Callable[..., None], english: str, german: str
) -> None:
    speaks()
    assert words.say(english) == english
    speaks(LANG="de_DE.UTF-8")
    assert words.say(english) == german


def test_no_catalogue_is_read_for_english(speaks: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    def read_one(path: str) -> None:
        raise AssertionError(path)

    words._catalogue_of.cache_clear()
    monkeypatch.setattr(words, "_read", read_one)
    speaks(LANG="en_GB.UTF-8")
    assert render.status(SESSION, CLUSTER, UUID).text.splitlines()[1] == ENGLISH


@pytest.mark.parametrize(
    "damaged",
    [
        '{"": ',
        "[]",
        "{}",
        '{"": {"plural_forms": "two"}}',
        '{"": {"plural_forms": "nplurals=2; plural=(n !"}}',
        '{"": {"plural_forms": "nplurals=1; plural=0;"}, "Idle": null}',
        '{"": {"plural_forms": "nplurals=1; plural=0;"}, "Idle": []}',
    ],
)
def test_a_catalogue_that_cannot_be_read_leaves_english(
    german: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, damaged: str
) -> None:
    (tmp_path / "de_DE" / "LC_MESSAGES").mkdir(parents=True)
    (tmp_path / "de_DE" / "LC_MESSAGES" / "jupyter_gpushare.json").write_text(damaged)
    words._catalogue_of.cache_clear()
    monkeypatch.setattr(words, "LOCALE", str(tmp_path))
    assert words.__("Idle") == "Idle"
    words._catalogue_of.cache_clear()


class Marked(words.Catalogue):
    """A language in which every text stands between guillemets."""

    def __init__(self) -> None:
        super().__init__({"": {"plural_forms": "nplurals=2; plural=(n != 1);"}})

    def form(self, text: str, many: str | None = None, count: int = 1) -> str:
        return f"«{text if many is None or count == 1 else many}»"

    def sentence(self, text: str) -> str:
        return f"«{text}»"


NAMES = re.compile(r"%gpu( \w+)*|GPU(-[hs]\b| \d| GPU-\w+-)|A100|80GB|alpha|cuda:0|/d\b")


def test_nothing_that_is_shown_is_written_past_the_catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "catalogue", Marked)
    waits = {**SESSION, "state": "waiting", "devices": [], "queue_position": 3, "eta_s": 240.0}
    series = [{"share": 0.1, "utilization": 0.5, "gpu_s": 1.0}]
    pool = {"gpus": 2, "members": [{"server": "alpha", "devices": [0, 1]}], "message": "It waits."}
    cards = [
        *(render.status({**SESSION, "state": state}, {**CLUSTER, "simulated": True}, UUID) for state in render._SHAPES),
        render.status(waits, {**CLUSTER, "queue": [None] * 6}),
        render.status({**waits, "queue_position": None}, CLUSTER),
        render.status({**SESSION, "reclaim_in_s": 3.0}, CLUSTER),
        render.why(WHY, SESSION, CLUSTER),
        render.why({"terms": [], "alternatives": []}, {**SESSION, "devices": []}, CLUSTER),
        *(render.waiting(WAITS, seconds) for seconds in (0.0, 75.0, 900.0, 9000.0, 900_000.0)),
        render.history({"since": 0.0, "until": 180.0, "series": series, "by_day": {"2026-12-02": 900.0}}),
        render.history({"since": 0.0, "until": 180.0, "series": [], "by_day": {}}),
        *(render.pool({**pool, "state": state}) for state in ("waiting", "ready", "running", "ended")),
    ]

    class Answers:
        def __getattr__(self, verb: str) -> Any:
            return lambda *asked, **named: {"state": "idle", "message": "It is done."}

    for verb, given in (
        ("near", ["/d"]),
        ("release", []),
        ("unpin", []),
        ("pin", ["2d"]),
        ("park", []),
        ("resume", []),
    ):
        cards.append(magics._VERBS[verb](Answers(), given))  # type: ignore[arg-type]
    cards += [magics._refusal(error("Why.")) for error in (magics.Unavailable, magics.Conflict, magics.GPUShareError)]
    for card in cards:
        spoken = " ".join(re.findall(r'aria-(?:label|valuetext)="([^"]*)"', card.html))
        for said in (card.text, read(card.html), spoken):
            left = said
            while (shorter := re.sub(r"«[^«»]*»", " ", left)) != left:
                left = shorter
            assert not re.search(r"[A-Za-z]{2}", NAMES.sub("", left)), said
