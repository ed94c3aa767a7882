"""Conversations in unusual but valid JSON. Each is a list of lines with their sender, as bytes with line ends.

`C` is the client and `S` the server. A client sends everything up to the server's next line without waiting.
"""

import json
import pathlib

C, S = "client", "server"
FOLDER = pathlib.Path(__file__).resolve().parent / "conversations"


def client(text):
    return (C, text if isinstance(text, bytes) else text.encode() + b"\n")


def server(text):
    return (S, text if isinstance(text, bytes) else text.encode() + b"\n")


HANDSHAKE = [
    client(
        '{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25",'
        '"capabilities":{},"clientInfo":{"name":"c","version":"1"}}}'
    ),
    server(
        '{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},'
        '"serverInfo":{"name":"s","version":"1"}}}'
    ),
    client('{"jsonrpc":"2.0","method":"notifications/initialized"}'),
]

# A list with unknown members in an unusual order.
LIST = [
    client('{"method":"tools/list","id":"list","jsonrpc":"2.0"}'),
    server(
        r'{ "result" : {"future":{"z":1.00,"a":12345678901234567890123},"tools":['
        r'{"annotations":{"readOnlyHint":true,"x":1e400},"inputSchema":{"type":"object"},"name":"look"},'
        r'{"name":"get_it","inputSchema":{"properties":{},"type":"object"}},'
        r'{"name":"do_it","inputSchema":{"properties":{"b":{"type":"string"},"a":{"default":1.0}},'
        r'"type":"object","required":["b"]},"icons":[],"description":"Z\u00fcrich"},'
        r'{"name":"strict","inputSchema":{"type":"object","additionalProperties":false}},'
        r'{"name":"bare","inputSchema":{"type":"object"},"outputSchema":{"type":"object"}}'
        r'],"nextCursor":"two"},"id":"list","jsonrpc":"2.0"}'
    ),
]


def exchange(identity, method, params, result):
    return [
        client(f'{{"jsonrpc":"2.0","id":{identity},"method":"{method}","params":{params}}}'),
        server(f'{{"jsonrpc":"2.0","id":{identity},"result":{result}}}'),
    ]


NUMBERS = '{"a":1.00,"b":1e400,"c":-0,"d":-0.0,"e":1E+2,"f":123456789012345678901234567890,"g":0.1000,"h":5e-324}'
ESCAPES = (
    r'{"\u0061":"\ud800","b":"\udc00 alone","c":"\ud83d\ude00","d":"\/\b\f\u0000","f":"\\u0041","e":"'
    "Zürich \u2028 😀"
    '"}'
)
SPACES = '{ "b" :\t1 ,"a": [ ] , "c":{ } ,\t"d" : [ 1 ,2 ] }'
DEEP = "[" * 1000 + "]" * 1000

CONVERSATIONS = {
    "a handshake with spaces, tabs and carriage returns": [
        client(
            b' {\t"params" : {"clientInfo":{"version":"1","name":"c"},"protocolVersion":"2025-06-18",'
            b'"capabilities":{ }},"method":"initialize", "id":0 , "jsonrpc":"2.0"} \r\n'
        ),
        server(
            b'{"id":0,"result":{"serverInfo":{"name":"s","version":"1"},"protocolVersion":"2025-06-18",'
            b'"capabilities":{}},"jsonrpc":"2.0"}\r\n'
        ),
        client(b'{"method":"notifications/initialized","jsonrpc":"2.0"}\r\n'),
        *exchange(1, "ping", SPACES, SPACES),
    ],
    "numbers that no float holds": [*HANDSHAKE, *exchange(1, "x/numbers", NUMBERS, NUMBERS)],
    "escapes, and surrogates without their halves": [*HANDSHAKE, *exchange(2, "x/escapes", ESCAPES, ESCAPES)],
    "ids of every kind": [
        *HANDSHAKE,
        *exchange('"one"', "ping", "{}", "{}"),
        *exchange(r'"\u0031"', "ping", "{}", "{}"),
        *exchange("-7", "ping", "{}", "{}"),
        *exchange("1.5", "ping", "{}", "{}"),
        *exchange("12345678901234567890123", "ping", "{}", "{}"),
        *exchange('""', "ping", "{}", "{}"),
        *exchange("1", "ping", "{}", "{}"),
        *exchange("1", "ping", "{}", "{}"),
    ],
    "the server asks, with ids that the client uses too": [
        *HANDSHAKE,
        client('{"jsonrpc":"2.0","id":1,"method":"resources/list"}'),
        server('{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{"messages":[],"maxTokens":1e1}}'),
        client('{"jsonrpc":"2.0","id":1,"result":{"role":"assistant","model":"m","content":{"text":"\\u00fc","type":"text"}}}'),
        server('{"jsonrpc":"2.0","id":"e","method":"elicitation/create","params":{"message":"?","requestedSchema":{}}}'),
        client('{"id":"e","error":{"message":"no","code":-1,"data":[1.0]},"jsonrpc":"2.0"}'),
        server('{"jsonrpc":"2.0","id":2,"method":"roots/list"}'),
        client('{"jsonrpc":"2.0","id":2,"result":{"roots":[]}}'),
        server('{"jsonrpc":"2.0","id":3,"method":"ping"}'),
        client('{"jsonrpc":"2.0","id":3,"result":{}}'),
        server('{"jsonrpc":"2.0","id":1,"result":{"resources":[]}}'),
    ],
    "notifications both ways": [
        *HANDSHAKE,
        client('{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}'),
        client('{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99,"reason":"none"}}'),
        client('{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":0.50}}'),
        client('{"jsonrpc":"2.0","method":"notifications/of/tomorrow","params":[1,2]}'),
        server('{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":{"b":1.0,"a":2}}}'),
        server('{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'),
        server('{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x://1"}}'),
        server('{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","progress":1.00}}'),
        server('{"method":"notifications/of/tomorrow","jsonrpc":"2.0"}'),
        *exchange(1, "ping", "{}", "{}"),
    ],
    "resources, prompts, completions, logging and tasks": [
        *HANDSHAKE,
        *exchange(1, "resources/list", '{"cursor":"x"}', '{"resources":[{"uri":"x://1","name":"n","size":1e3}]}'),
        *exchange(2, "resources/templates/list", "{}", '{"resourceTemplates":[]}'),
        *exchange(3, "resources/read", '{"uri":"x://1"}', '{"contents":[{"uri":"x://1","blob":"AAECAw=="}]}'),
        *exchange(4, "resources/subscribe", '{"uri":"x://1"}', "{}"),
        *exchange(5, "prompts/list", "{}", '{"prompts":[{"name":"p"}]}'),
        *exchange(6, "prompts/get", '{"name":"p","arguments":{"b":"1","a":"2"}}', '{"messages":[]}'),
        *exchange(7, "completion/complete", '{"ref":{},"argument":{}}', '{"completion":{"values":[],"total":0.0}}'),
        *exchange(8, "logging/setLevel", '{"level":"debug"}', "{}"),
        *exchange(9, "tasks/get", '{"taskId":"t"}', '{"taskId":"t","status":"working","ttl":1.0}'),
        *exchange(10, "tasks/list", "{}", '{"tasks":[]}'),
        *exchange(11, "method/of/tomorrow", '[1,{"b":1,"a":2}]', '"a text"'),
        *exchange(12, "method/of/tomorrow", "null", "null"),
    ],
    "answers out of order, errors, and answers to nothing": [
        *HANDSHAKE,
        client('{"jsonrpc":"2.0","id":1,"method":"ping"}'),
        client('{"jsonrpc":"2.0","id":2,"method":"ping"}'),
        client('{"jsonrpc":"2.0","id":3,"method":"x"}'),
        server('{"jsonrpc":"2.0","id":3,"error":{"message":"no such method","data":{"b":1.0,"a":1},"code":-32601}}'),
        server('{"jsonrpc":"2.0","id":2,"result":{}}'),
        server('{"jsonrpc":"2.0","id":77,"result":{}}'),
        server('{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what?"}}'),
        server('{"jsonrpc":"2.0","id":1,"result":{}}'),
    ],
    "a tool that reads is called with odd arguments, twice": [
        *HANDSHAKE,
        *LIST,
        *exchange(1, "tools/call", '{"name":"look","arguments":' + NUMBERS + "}", '{"content":[],"x":' + NUMBERS + "}"),
        *exchange(2, "tools/call", '{"name":"look","arguments":' + NUMBERS + "}", '{"content":[],"x":1.0}'),
        *exchange(3, "tools/call", '{"arguments":' + ESCAPES + ',"name":"get_it"}', '{"x":' + ESCAPES + ',"content":[]}'),
        *exchange(4, "tools/call", '{"name":"l\\u006fok","_meta":{"progressToken":1.0}}', '{"isError":true,"content":[]}'),
        *exchange(5, "tools/call", '{"name":"look"}', '{"resultType":"input_required","requestState":"s"}'),
    ],
    "a tool that acts is called with odd arguments": [
        *HANDSHAKE,
        *LIST,
        *exchange(1, "tools/call", '{"name":"do_it","arguments":{"b":"1","z":1.50,"a":[1e2,-0]},"x":1.0}', '{"content":[],"x":1.00}'),
        *exchange(2, "tools/call", r'{"_meta":{"b":1.00,"a":2},"arguments":{"b":"\u00fc"},"name":"do_it"}', '{"content":[]}'),
        *exchange('"\\u0033"', "tools/call", '{"name":"strict"}', '{ "content":[{"type":"text","text":"\\u00fc"}]}'),
        *exchange(4, "tools/call", '{"name":"bare","arguments":{}}', '{"content":[],"structuredContent":' + NUMBERS + "}"),
    ],
    "a tool that acts tells how far it is, asks its client, and fails": [
        *HANDSHAKE,
        *LIST,
        client('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"do_it","_meta":{"progressToken":1}}}'),
        server('{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":0.50}}'),
        server('{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":{"b":1.0,"a":2}}}'),
        server('{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{"messages":[ ],"maxTokens":1e2}}'),
        client('{"jsonrpc":"2.0","id":1,"result":{"role":"assistant","x":1.00}}'),
        server('{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1.0}}'),
        server('{ "id":1,"result":{"_meta":{"x":1.0},"content":[],"structuredContent":{"b":1.00,"a":2}},"jsonrpc":"2.0"}'),
        client('{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"strict","arguments":{"n":1}}}'),
        server('{"jsonrpc":"2.0","id":2,"error":{"message":"wrong","data":{"b":1.0,"a":[ ]},"code":-32602,"x":1}}'),
        client('{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"strict","arguments":{"n":2}}}'),
        server('{"jsonrpc":"2.0","error":{"code":-32042,"message":"log in","data":{"elicitations":[]}},"id":3}'),
        *exchange(4, "tools/call", '{"name":"strict","arguments":{"n":3}}', '{"isError":true,"content":[ ],"x":1.0}'),
    ],
    "pages of a list with nothing to guard": [
        *HANDSHAKE,
        client('{"jsonrpc":"2.0","id":1,"method":"tools/list"}'),
        server('{ "id":1,"result":{"tools":[ {"name":"get_it","n":1.00} ],"nextCursor":"2","x":1e2},"jsonrpc":"2.0"}'),
        client('{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{"cursor":"2"}}'),
        server('{ "id":2,"result":{"ttlMs":1.0,"tools":[ {"name":"list_it"} ],"_meta":{ }},"jsonrpc":"2.0"}'),
        *exchange(3, "tools/call", '{ "name":"list_it"}', '{ "content":[]}'),
    ],
    "a tool that reads is called, and the call is cancelled": [
        *HANDSHAKE,
        *LIST,
        client('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"look"}}'),
        client('{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"timed out"}}'),
        *exchange(2, "tools/call", '{"name":"look"}', '{"content":[],"x":1.0}'),
    ],
    "a tool that acts takes and gives five megabytes": [
        *HANDSHAKE,
        *LIST,
        *exchange(
            1,
            "tools/call",
            '{"name":"do_it","arguments":{"b":"' + "x" * 500_000 + '"}}',
            '{"content":[{"type":"text","text":"' + "ü" * 2_500_000 + '"}]}',
        ),
    ],
    "messages of five megabytes": [
        *HANDSHAKE,
        *exchange(1, "x/big", '"' + "x" * 5_000_000 + '"', '"' + "ü" * 2_500_000 + '"'),
    ],
    "a thousand levels": [*HANDSHAKE, *exchange(1, "x/deep", DEEP, DEEP)],
    "the newest generation": [
        client(
            '{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":'
            '{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}'
        ),
        server('{"jsonrpc":"2.0","id":1,"result":{"supportedVersions":["2026-07-28"],"capabilities":{},"resultType":"complete"}}'),
        *exchange(2, "subscriptions/listen", '{"notifications":{"toolsListChanged":true}}', '{"resultType":"complete"}'),
        *exchange(3, "prompts/get", '{"name":"p"}', '{"resultType":"input_required","requestState":"x"}'),
        *exchange(4, "tasks/update", '{"taskId":"t","inputResponses":{}}', '{"resultType":"complete"}'),
    ],
    "lines of a server that are not messages": [
        server("Server started on stdio"),
        *HANDSHAKE,
        server(b"\xff\xfe not even text\n"),
        server("[1,2]"),
        server("{}"),
        server('{"jsonrpc":"2.0"'),
        *exchange(1, "ping", "{}", "{}"),
    ],
    "blank lines": [
        *HANDSHAKE,
        client(b"\n"),
        client(b" \t \r\n"),
        client('{"jsonrpc":"2.0","id":1,"method":"ping"}'),
        server(b"\n"),
        server(b"\r\n"),
        server('{"jsonrpc":"2.0","id":1,"result":{}}'),
    ],
    "a last line without an end": [
        *HANDSHAKE,
        *exchange(1, "ping", "{}", "{}"),
        client(b'{"jsonrpc":"2.0","method":"notifications/bye"}'),
        server(b'{"jsonrpc":"2.0","method":"notifications/bye"}'),
    ],
}


def all_of_them():
    """The conversations above and the recorded ones."""
    recorded = {}
    for file in sorted(FOLDER.glob("*.jsonl")):
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        recorded[f"recorded: {file.stem}"] = [(one["from"], one["line"].encode() + b"\n") for one in lines]
    return CONVERSATIONS | recorded
