"""JSON read without loss: members in their order, numbers as they are written."""

import json


class Number(str):
    """A number as it is written."""


class Members(list):
    """The members of an object, in their order."""

    def get(self, name):
        return next((value for key, value in self if key == name), None)

    def without(self, *names):
        return Members((key, value) for key, value in self if key not in names)

    def having(self, name, value):
        return Members((key, value if key == name else old) for key, old in self)


def read(line):
    return json.loads(line, parse_int=Number, parse_float=Number, parse_constant=Number, object_pairs_hook=Members)


def written(value):
    if isinstance(value, Members):
        return "{" + ",".join(f"{json.dumps(name)}:{written(one)}" for name, one in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(written(one) for one in value) + "]"
    return str(value) if isinstance(value, Number) else json.dumps(value)


def without_ours(message):
    """A server's message without the gateway's additions to lists of tools and to results."""
    result = message.get("result") if isinstance(message, Members) else None
    if not isinstance(result, Members):
        return message
    if isinstance(result.get("tools"), list):
        tools = [of_server(tool) for tool in result.get("tools") if tool.get("name") != "onceward_status"]
        result = result.having("tools", tools)
    if isinstance(result.get("_meta"), Members):
        meta = result.get("_meta").without("onceward")
        result = result.having("_meta", meta) if meta else result.without("_meta")
    return message.having("result", result)


def of_server(tool):
    """A tool without the gateway's argument, and without a member that is empty then."""
    schema = tool.get("inputSchema")
    properties = schema.get("properties")
    if not isinstance(properties, Members):
        return tool
    left = properties.without("onceward_repeat")
    schema = schema.having("properties", left) if left else schema.without("properties")
    return tool.having("inputSchema", schema)
