"""The server of the review page: who is answered, and what is written."""

import http.client
import json
import threading

import numpy as np
import pytest

from imae.audit.correct import Sample
from imae.audit.decisions import Decision, identity, read_decisions, write_decisions
from imae.audit.serve import Review, Server
from imae.errors import DataError


@pytest.fixture
def served(make_audit, tmp_path):
    audit = make_audit()
    server = Server(Review(audit, tmp_path / "audit" / "decisions.csv"))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def ask(server, method="GET", path=None, *, body=None, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    path = f"/{server.token}/" if path is None else path
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body=body, headers=headers)
    answer = connection.getresponse()
    content = answer.read().decode()
    connection.close()
    return answer.status, content, answer.headers


def send(server, changes, *, mark=None, **headers):
    body = json.dumps({"identity": mark or server.review.overview.identity, "changes": changes})
    headers = {"Content_Type": "application/json"} | headers
    return ask(server, "POST", f"/{server.token}/decisions", body=body, **headers)[:2]


def test_the_page_is_served_to_its_address(served):
    status, content, headers = ask(served)
    assert status == 200
    assert "Which labels are wrong" in content
    assert headers["Cache-Control"] == "no-store"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert served.server_address[0] == "127.0.0.1"
    assert ask(served, path=f"/{served.token}/page-0001.html")[0] == 200
    assert ask(served, path=f"/{served.token}/page-0002.html")[0] == 404
    assert ask(served, path=f"/{served.token}/../../etc/passwd")[0] == 404


def test_an_address_without_its_last_slash_leads_to_the_page(served):
    status, content, headers = ask(served, path=f"/{served.token}")
    assert (status, content, headers["Location"]) == (307, "", f"/{served.token}/")


@pytest.mark.parametrize("path", ["/", "/index.html", "/wrong/", "/wrong/decisions", "/%00/", "x"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_without_the_token_nobody_is_answered(served, path, method):
    status, content, _ = ask(served, method, path, body="{}" if method == "POST" else None)
    assert status == 403
    assert "token" in content
    assert served.token not in content


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "evil.example:80", ""]
)
def test_another_host_is_refused(served, host):
    assert ask(served, Host=host)[0] == 403
    assert send(served, [], Host=host)[0] == 403


@pytest.mark.parametrize("second", ["evil.example", None])
def test_more_than_one_host_is_refused(served, second):
    own = f"127.0.0.1:{served.server_port}"
    connection = http.client.HTTPConnection("127.0.0.1", served.server_port, timeout=10)
    connection.putrequest("GET", f"/{served.token}/", skip_host=True)
    for host in (own, second or own):
        connection.putheader("Host", host)
    connection.endheaders()
    assert connection.getresponse().status == 403
    connection.close()


def test_each_server_has_a_token_of_its_own(make_audit, tmp_path):
    servers = [Server(Review(make_audit(), tmp_path / "d.csv")) for _ in range(2)]
    assert len(servers[0].token) >= 40
    assert servers[0].token != servers[1].token
    for server in servers:
        server.server_close()


def test_decisions_are_written_whole_and_taken_back(served):
    review = served.review
    change = {"row_id": "photo/4.jpg", "decision": "accept", "label": "dog", "time": "2026"}
    assert send(served, [change, {"row_id": "photo/5.jpg", "decision": "keep"}]) == (204, "")
    found = read_decisions(review.audit, [review.path])
    assert {row: each.decision for row, each in found.items()} == {4: "accept", 5: "keep"}
    assert send(served, [{"row_id": "photo/4.jpg", "decision": None}])[0] == 204
    assert list(read_decisions(review.audit, [review.path])) == [5]
    again = Review(review.audit, review.path)
    assert list(again.decisions) == [5]
    assert "photo/5.jpg" in again.page(0)


def test_a_row_that_only_the_program_decided_about_is_shown_as_undecided(make_audit, tmp_path):
    audit, path = make_audit(), tmp_path / "decisions.csv"
    by_row = {
        0: Decision("accept", int(audit.suggested[0]), by="program"),
        1: Decision("keep", by="person"),
    }
    write_decisions(audit, by_row, path)
    review = Review(audit, path)
    assert [each["row_id"] for each in review.decided()] == ["photo/1.jpg"]
    kept = {"row_id": "photo/3.jpg", "decision": "keep"}
    review.change({"identity": review.overview.identity, "changes": [kept]})
    assert read_decisions(audit, [path])[0] == by_row[0]  # still the program's


def test_the_given_label_once_more_is_kept(served):
    given = served.review.audit.class_names[served.review.audit.given[4]]
    change = {"row_id": "photo/4.jpg", "decision": "relabel", "label": given}
    assert send(served, [change])[0] == 204
    assert served.review.decisions[4].decision == "keep"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"row_id": "photo/99.jpg", "decision": "keep"}, "not a row of this run"),
        ({"row_id": 4, "decision": "keep"}, "not a row of this run"),
        ({"row_id": "photo/4.jpg", "decision": "burn"}, "not a decision"),
        ({"row_id": "photo/4.jpg", "decision": "relabel", "label": "cow"}, "one of the classes"),
        ({"row_id": "photo/4.jpg", "decision": "accept"}, "one of the classes"),
        ("photo/4.jpg", "not a decision"),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_written(served, change, message):
    good = {"row_id": "photo/1.jpg", "decision": "keep"}
    status, content = send(served, [good, change])
    assert status == 409
    assert message in content
    assert not served.review.path.exists()


def test_a_page_of_another_run_is_refused(served, make_audit):
    mark = identity(make_audit(prefix="other"))
    status, content = send(served, [{"row_id": "photo/1.jpg", "decision": "keep"}], mark=mark)
    assert status == 409
    assert "another run" in content
    assert not served.review.path.exists()


def test_a_foreign_origin_a_form_and_a_flood_are_refused(served):
    keep = [{"row_id": "photo/1.jpg", "decision": "keep"}]
    assert send(served, keep, Origin="https://evil.example")[0] == 403
    assert send(served, keep, Content_Type="text/plain")[0] == 404
    path = f"/{served.token}/decisions"
    json_type = {"Content_Type": "application/json"}
    assert ask(served, "POST", path, body="{", **json_type)[0] == 400
    assert ask(served, "POST", path, body="[" * 100_000, **json_type)[0] == 400
    for length in ("99999999", "9" * 5000, "-1", "x"):
        assert ask(served, "POST", path, Content_Length=length, **json_type)[0] == 413
    assert ask(served, "POST", f"/{served.token}/", body="{}", **json_type)[0] == 404
    assert not served.review.path.exists()
    assert send(served, keep, Origin=f"http://127.0.0.1:{served.server_port}")[0] == 204


def test_a_full_disk_is_said_and_nothing_is_lost(served, monkeypatch):
    assert send(served, [{"row_id": "photo/1.jpg", "decision": "keep"}])[0] == 204

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("imae.audit.serve.write_decisions", full)
    status, content = send(served, [{"row_id": "photo/2.jpg", "decision": "keep"}])
    assert (status, content) == (
        500,
        "the decisions cannot be written (No space left on device)",
    )
    assert list(served.review.decisions) == [1]


def test_decisions_of_another_run_stop_the_server_before_it_starts(make_audit, served):
    send(served, [{"row_id": "photo/1.jpg", "decision": "keep"}])
    before = served.review.path.read_bytes()
    with pytest.raises(DataError, match="another run"):
        Review(make_audit(prefix="other"), served.review.path)
    assert served.review.path.read_bytes() == before


def test_the_check_is_served_too(make_audit, tmp_path):
    review = Review(make_audit(), tmp_path / "d.csv", sample=Sample(np.array([3, 1])))
    page = review.page(0)
    assert review.num_parts == 1
    assert "Are the flagged labels wrong?" in page
    assert page.count('class="card"') == 2
