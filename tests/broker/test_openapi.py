"""The OpenAPI document is valid and says of every route what is true of it."""

from __future__ import annotations

import json
import re

import msgspec
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from jupyter_gpushare._version import __version__
from jupyter_gpushare.broker.api import ROUTES
from jupyter_gpushare.broker.openapi import build


@pytest.fixture(scope="module")
def document():
    return json.loads(msgspec.json.encode(build(ROUTES)))


def test_the_document_is_valid_openapi_3_1(document):
    OpenAPIV31SpecValidator(document).validate()
    assert document["openapi"].startswith("3.1")
    assert document["info"]["version"] == __version__


def test_every_route_is_described_once_and_the_stream_too(document):
    described = {(method.upper(), path.lstrip("/")) for path, item in document["paths"].items() for method in item}
    assert described == {(route.method, route.path) for route in ROUTES} | {("GET", "events")}
    operations = [operation for item in document["paths"].values() for operation in item.values()]
    assert len({operation["operationId"] for operation in operations}) == len(operations)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_a_route_names_its_parameters_answers_and_role(document, route):
    operation = document["paths"][f"/{route.path}"][route.method.lower()]

    in_path = [found["name"] for found in operation["parameters"] if found["in"] == "path"]
    assert in_path == re.findall(r"{(\w+)}", route.path)
    assert operation["tags"][0] == route.role
    assert {"400", "403", "404", "409", "503"} < set(operation["responses"])
    assert operation.get("summary") or route.internal
    if route.body.__struct_fields__:
        assert "requestBody" in operation
    if route.answer is not None:
        assert "application/json" in operation["responses"][str(route.status)]["content"]


def test_a_status_is_described_field_by_field(document):
    schemas = document["components"]["schemas"]
    assert set(schemas["Status"]["required"]) >= {"version", "rev", "servers", "sessions", "queue", "summary"}
    utilization = schemas["DeviceView"]["properties"]["utilization"]
    assert {"type": "null"} in utilization["anyOf"]  # unknown is null
    assert schemas["Error"]["required"] == ["message", "reason"]
