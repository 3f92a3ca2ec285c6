"""/openapi.json names every route, and requests made from it meet no 500 and no undeclared answer."""

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks

from api.openapi.document import document
from api.routing import ENDPOINTS

CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]
OPERATIONS = [found.ok() for found in schemathesis.openapi.from_dict(document(ENDPOINTS)).get_all_operations()]
EXAMPLES = settings(
    max_examples=30, deadline=None, derandomize=True, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
)


def make_requests(operation, mode, base_url):
    @EXAMPLES
    @given(operation.as_strategy(generation_mode=mode))
    def run(case):
        case.call_and_validate(base_url=base_url, checks=CHECKS)

    run()


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.label)
def test_requests_as_described(http, base_url, fleet, engine, operation):
    make_requests(operation, GenerationMode.POSITIVE, base_url)


@pytest.mark.parametrize("operation", [one for one in OPERATIONS if one.body], ids=lambda operation: operation.label)
def test_requests_that_the_description_forbids(http, base_url, fleet, engine, operation):
    make_requests(operation, GenerationMode.NEGATIVE, base_url)


def test_every_route_is_described(http, fleet, engine):
    told = http.get("/openapi.json").json()
    assert told["openapi"].startswith("3.1")
    described = {(path, method) for path, item in told["paths"].items() for method in item}
    assert len(described) == sum(len(endpoint.handlers) for endpoint in ENDPOINTS.values())
    for path, method in described:
        if "{" not in path:
            answer = http.request(method, path, json={} if method == "post" else None)
            assert answer.status_code == (400 if method == "post" else 200), path
