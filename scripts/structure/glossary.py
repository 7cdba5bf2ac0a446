# SPDX-License-Identifier: Apache-2.0
"""Words to avoid in the sources."""

import re

# Entries: a word to avoid, its replacement, and the folder to which the rule applies (empty: everywhere). The word to
# avoid is a regular expression for words of comments and of identifiers. The identifier told_allowed counts as the
# words "told allowed".
WORDS = [
    ("settle[sd]?|settling", "pin in place (memory), advance (core), reap (copies)", ""),
    ("told allowed|allowed", "resident limit", ""),
    ("under way", "restore in flight", ""),
    ("held back|waits for host", "deferred growth", ""),
    ("stuck", "eviction failed", ""),
    ("surges?|to come|put off", "growth forecast", ""),
    ("steps?", "slice", "arbiter/policy"),
    ("laggards?|lags", "blocked peer", "arbiter/core"),
    ("starved", "needs growth to drain", ""),
    ("outgrown", "displaced by growth", ""),
    ("comes home|must come home|brought home|home pause", "host memory recall", ""),
    ("idled", "released for idleness", ""),
    ("given back|gives back|give back", "yielded, yield turn", "arbiter/core"),
    ("interrupt(s|ed|ion|ions)?", "preempt", "arbiter"),
    ("peace left", "protected for", ""),
    ("price of interruption", "preemption cost", ""),
    ("goes on", "extend", "arbiter"),
    ("barred for", "throttled for", ""),
    ("allowed for", "budget left", ""),
    ("credits?", "lag", "arbiter/policy"),
    ("standings?", "activity interval", "arbiter"),
    ("(all )?timed", "time-shared, exclusive", "arbiter/core"),
    ("rest(s|ing)|awake|wake", "inactive, active", "arbiter/core"),
    ("ahead", "backlog", "interposer"),
    ("marks?", "pass counter, fence", "interposer"),
    ("grace", "recovery period (arbiter), drain exemption (gate)", ""),
    ("patience", "timeout", ""),
    ("look(s|ed|ing)?", "poll, fingerprint, check", ""),
    ("books?", "memory accounting", ""),
    ("claims?", "unsolicited growth, acquire (interposer), entitlement (arbiter)", ""),
    ("unclaim", "release", ""),
    ("leavers?", "victim", ""),
    ("condemn(ed)?|repriev(e|ed)|dying", "mark freed, unmark, being freed", ""),
    ("lien", "lock file", ""),
    ("lend(s|ing)?|lent|lenders?|loans?", "export", ""),
    ("borrow(s|ed|ing|er|ers)?", "import", ""),
    ("seats?", "page index", "interposer"),
    ("doorbell|poke[sd]?", "wake pipe, wake", ""),
    ("tend(s|ed|ing)?", "maintenance", "interposer"),
    ("keepers?|anchored", "holders, held by connection", "arbiter"),
    ("pulse", "usage poller", "accounting"),
    ("courier", "retry queue", "comment"),
    ("carrier", "reporting task", "accounting"),
    ("plain", "unmanaged", ""),
    ("shared out", "managed", ""),
    ("tells?|told|telling", "report", ""),
    ("reckon(s|ed|ing)?", "compute", ""),
    ("hear(s|d|ing)?", "handle", ""),
    ("who|whom|whose|those", "the noun that is meant", ""),
    ("for want of|be it", "for lack of, even if", ""),
]

# First words of sentences whose subject is no noun.
HEADLESS = re.compile(r"(Who|What|Whom|Whose|Those|Of|Where|How|Whether)\b")

# Phrases of comments about the history of the code.
HISTORY = {
    "no longer": re.compile(r"\bno longer\b"),
    "any more": re.compile(r"\bany ?more\b"),
    "used to": re.compile(r"(?<!is )(?<!are )(?<!be )\bused to\b"),
    "now": re.compile(r"(?<![`\w.>])now\b(?!`|\()"),
}
