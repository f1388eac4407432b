"""The page that starts a server offers GPUs beside what is there already, and the hub remembers what was chosen."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
from jupyterhub.spawner import LocalProcessSpawner
from kubespawner import KubeSpawner
from traitlets.config import Config

from jupyter_gpushare.errors import BadDemand
from jupyter_gpushare.hub import configure, options_form, pre_spawn_hook
from jupyter_gpushare.hub.form import asked_in, page
from jupyter_gpushare.server import chosen
from tests.hub.spawning import OwnSpawner, service


def picked(form: str) -> list[tuple[str, str]]:
    """The chosen entry of each list of the form, and the words for it."""
    return re.findall(r'<option value="([^"]*)" selected>([^<]*)<', form)


def offered(form: str) -> list[str]:
    return re.findall(r'<option value="([^"]*)"', form)


async def test_without_a_form_of_its_own_there_is_ours(users):
    form = await options_form(users.spawner(LocalProcessSpawner), share=0.25)
    assert offered(form) == ["0", "0.25", "1", "2", "4", "8"]
    assert picked(form) == [("0.25", "a share (at least 25%)")]
    assert "model" not in form.lower()


async def test_models_are_offered_where_they_are_named(users):
    form = await options_form(users.spawner(LocalProcessSpawner), models=("A100", 'H100"><script>'))
    assert offered(form)[-3:] == ["", "A100", "H100&quot;&gt;&lt;script&gt;"]
    assert "<script>" not in form


async def test_a_form_that_is_there_follows_ours(users):
    async def later(spawner):
        return f"<i>{spawner.user.name}</i>"

    spawner = users.spawner(LocalProcessSpawner)
    for theirs, text in (("<b>theirs</b>", "<b>theirs</b>"), (later, "<i>root</i>"), (lambda _: None, "</div>\n")):
        form = await options_form(spawner, before=theirs)
        assert form.endswith(text)
        assert offered(form)


@pytest.mark.parametrize("later", [False, True])
async def test_kubespawners_profiles_stay(users, later):
    profiles = [{"display_name": "Small", "slug": "small"}]
    given = (lambda spawner: profiles) if later else profiles
    form = await options_form(users.spawner(KubeSpawner, {"profile_list": given}))
    assert "Small" in form
    assert offered(form)[0] == "0"


async def test_what_was_chosen_last_is_picked_out(users):
    spawner = users.spawner(LocalProcessSpawner)
    spawner.user_options = {}
    spawner.orm_spawner.user_options = {"gpushare": {"gpus": 3, "model": "H100"}, "profile": "small"}
    form = await options_form(spawner, models=("A100", "H100"))
    assert picked(form) == [("3", "3 whole GPUs"), ("H100", "H100")]
    spawner.orm_spawner.user_options = {"gpushare": {"gpus": "rubbish"}}
    assert picked(await options_form(spawner))[0][0] == "0.1"


def test_a_share_that_is_not_offered_is_kept_as_it_was_chosen():
    assert picked(page(asked_in({"gpushare": {"gpus": 0.5}}), 0.1, ()))[0] == ("0.5", "a share (at least 50%)")


def request(**fields: str) -> SimpleNamespace:
    return SimpleNamespace(request=SimpleNamespace(arguments={name: [text.encode()] for name, text in fields.items()}))


async def test_the_forms_fields_are_used_and_remembered_whatever_the_spawner_makes_of_forms(users):
    spawner = users.spawner(KubeSpawner)
    spawner.handler = request(gpushare_gpus="2", gpushare_model="A100", profile="small")
    spawner.user_options = spawner.run_options_from_form({"profile": ["small"], "gpushare_gpus": ["2"]})
    spawner.orm_spawner.user_options = spawner.user_options
    async with service() as answers:
        await pre_spawn_hook(spawner, url=answers.url)
    wanted = {"profile": "small", "gpushare": {"gpus": 2.0, "model": "A100"}}
    assert spawner.user_options == wanted
    users.db.commit()
    users.db.expire_all()
    assert spawner.orm_spawner.user_options == wanted
    assert answers.asked[0][1]["constraints"] == {"model": "A100"}


@pytest.mark.parametrize("gpus", ["1.5", "-1", "nan", "inf", "many", "", "1e9"])
async def test_a_forged_field_is_not_remembered(users, gpus):
    spawner = users.spawner(OwnSpawner)
    spawner.handler = request(gpushare_gpus=gpus)
    async with service() as answers:
        await pre_spawn_hook(spawner, url=answers.url)
    assert "gpushare" not in spawner.user_options
    assert "GPUSHARE_DEMAND" not in spawner.environment


@pytest.mark.parametrize(
    ("default", "share"),
    [(0.25, 0.25), (0, 0.1), (1, 0.1), (None, 0.1)],
    ids=["a share", "none", "a whole one", "unset"],
)
async def test_one_line_offers_the_form(users, default, share):
    c = Config()
    if default is not None:
        c.GPUShare.default_gpus = float(default)
    c.KubeSpawner.options_form = "<b>theirs</b>"
    configure(c, gpu_form=["A100"])
    form = await c.Spawner.options_form(users.spawner(LocalProcessSpawner))
    assert picked(form)[0][0] == f"{share:g}"
    assert "A100" in form
    assert (await c.KubeSpawner.options_form(users.spawner(LocalProcessSpawner))).endswith("<b>theirs</b>")


def test_without_the_line_the_page_stays_as_it_was():
    c = Config()
    configure(c)
    assert "options_form" not in c.Spawner


@pytest.mark.parametrize("options", [{"gpus": 1, "model": 3}, {"model": "A100"}, {"gpus": 1, "count": 2}])
def test_options_of_another_form_are_refused(options):
    with pytest.raises(BadDemand, match="gpushare"):
        asked_in({"gpushare": options})


@pytest.mark.parametrize(
    ("gpus", "model"), [(0.0, None), (0.1, "A100"), (2.0, "NVIDIA A100-SXM4 & more=x {y} %n"), (64, "ü")]
)
def test_a_demand_comes_out_of_the_environment_as_it_went_in(gpus, model):
    text = chosen.as_text(gpus, model)
    assert not set(text) & set("{}$\"'\n ")
    assert chosen.as_fields(text) == {"gpus": gpus} | ({"constraints": {"model": model}} if model else {})


def test_no_variable_is_no_demand():
    assert chosen.as_fields("") == {}
    assert chosen.as_fields("gpus=many") == {"gpus": "many"}
