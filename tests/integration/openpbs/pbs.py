# SPDX-License-Identifier: Apache-2.0
"""Replaces the Python module that OpenPBS offers to hooks. Contains the parts that the hook of etc/openpbs uses.

`python3 pbs.py HOOK EVENT` runs the hook as pbs_mom would. EVENT is JSON: `type` is the event's name, the other fields are its
attributes. Prints the resulting `env`, one variable per line, as PBS passes it to the job.
"""
import json
import sys
import types

EXECJOB_BEGIN, EXECJOB_LAUNCH, EXECJOB_END, EXECHOST_PERIODIC = range(4)
LOG_WARNING, LOG_DEBUG = range(2)

_event = None


def event():
    return _event


def logmsg(level, text):
    print(text, file=sys.stderr)


def get_local_nodename():
    return "node1"


class _Event(types.SimpleNamespace):
    def accept(self):
        raise SystemExit(0)


def _run(hook, text):
    global _event
    given = json.loads(text, object_hook=lambda fields: fields)
    if "job" in given:
        given["job"] = types.SimpleNamespace(**given["job"])
    _event = _Event(**{**given, "type": globals()[given["type"].upper()]})
    try:
        with open(hook) as file:
            exec(compile(file.read(), hook, "exec"), {"__name__": "__main__"})
    except SystemExit as end:
        if end.code != 0:
            raise
    for name, value in getattr(_event, "env", {}).items():
        print("%s=%s" % (name, value.replace("\\,", ",")))


if __name__ == "__main__":
    sys.modules["pbs"] = sys.modules["__main__"]
    _run(*sys.argv[1:])
