"""The door for assistants, as its client speaks to it."""

import json
import subprocess

import pytest
from conftest import PROGRAM


class Client:
    def __init__(self, data):
        command = [PROGRAM, "mcp", "--data", data, "--processor", "cpu"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.last = 0

    def send(self, message):
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self.process.stdin.flush()

    def ask(self, method, params=None):
        self.last += 1
        self.send({"id": self.last, "method": method, "params": params or {}})
        answer = json.loads(self.process.stdout.readline())
        assert answer["id"] == self.last
        return answer

    def call(self, name, **arguments):
        result = self.ask("tools/call", {"name": name, "arguments": arguments})["result"]
        return result["content"][0]["text"], result["isError"]


@pytest.fixture
def client(data):
    client = Client(data)
    begun = client.ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {}})["result"]
    assert begun["protocolVersion"] == "2025-06-18" and begun["serverInfo"]["name"] == "headrace"
    client.send({"method": "notifications/initialized"})
    yield client
    client.process.stdin.close()
    assert client.process.wait(20) == 0


def test_tools_answer(client):
    names = [tool["name"] for tool in client.ask("tools/list")["result"]["tools"]]
    assert names == ["list_tables", "describe", "query", "explain"]
    assert client.call("list_tables") == ("kinds\nmany\nwide", False)
    told, _ = client.call("describe", table="kinds")
    assert told.startswith("3 rows\nnth INT\n") and "price DECIMAL(15, 2)" in told
    assert client.call("query", sql="select part, count(*) as n from many where part < 2 group by part order by part") == (
        "part,n\n0,285715\n1,285715\n", False)  # fmt: skip
    plan, _ = client.call("explain", sql="select count(*) from many")
    assert "many" in plan


def test_answers_are_short(client):
    text, _ = client.call("query", sql="select id from many")
    assert text.count("\n") == 1 + 100 + 2 and text.endswith("there is more: aggregate, or ask with WHERE and LIMIT\n")
    text, _ = client.call("query", sql="select text from wide", max_rows=10_000)
    assert len(text) < 70_000 and "there is more" in text


def test_nothing_is_written_and_failures_help(client):
    text, is_error = client.call("query", sql="create table t as select 1")
    assert is_error and "changes tables" in text
    text, is_error = client.call("query", sql="select nthh from kinds")
    assert is_error and "^" in text and "hint: " in text
    assert client.call("query", sql="select * from '/etc/passwd'")[1]
    assert client.ask("tools/call", {"name": "drop", "arguments": {}})["error"]["code"] == -32602
    assert client.ask("nothing")["error"]["code"] == -32601


def test_what_is_no_message_is_told_so(client):
    client.process.stdin.write("{\n\n")
    client.process.stdin.flush()
    assert json.loads(client.process.stdout.readline())["error"]["code"] == -32700
    assert client.ask("ping")["result"] == {}


def test_a_request_is_cancelled(client):
    client.send({"id": "slow", "method": "tools/call",
                 "params": {"name": "query", "arguments": {"sql": "select count(*) from many a join many b on a.part = b.part where a.id + b.id = -1"}}})  # fmt: skip
    client.send({"method": "notifications/cancelled", "params": {"requestId": "slow"}})
    assert client.ask("ping")["result"] == {}
