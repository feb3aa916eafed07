"""``decide()``: the route of a request, from nothing but what it is given, so that it is the same when it is replayed.

In this order: ``/hub``, the supervisor's own commands, an agent that is named, the only agent, a mention, the agent
that the session had before, the skills that the words of the request fit, a classifier's proposal, the default route.

Rules: only agents that are offered in ``request`` are named in a route. A classifier proposes and never overrules an
agent that was named. What is unclear is asked, ``MAX_ROUNDS`` times at most.

Weak: skills are compared word by word, so a request in other words than the skills' goes to the default route.
"""

from __future__ import annotations

from collections.abc import Sequence

from sublet.protocol.near import did_you_mean
from sublet.supervisor.router.route import MAX_OPTIONS, Candidate, Classification, Route, RouteRequest
from sublet.supervisor.router.syntax import Direct, mentions, parse, words

SURE = 1.0
MAX_ROUNDS = 3
"""Questions about one request; after these it is rejected."""
ONLY = 0.9
REMEMBERED = 0.75
REMEMBERED_CHANGED = 0.6
DEFAULT = 0.5
AMBIGUOUS = 0.3
TAG_WEIGHT, NAME_WEIGHT, DESCRIPTION_WEIGHT = 3.0, 2.0, 0.5

_COMMON = words(
    "a an and any are as at be but by can could do does for from get give has have how i if in into is it its let make "
    "me my no not of on or our out please run so some that the their then there this to up us use was we what when "
    "which who will with would you your agent task work"
)


def decide(request: RouteRequest, classified: Classification | None = None) -> Route:
    """Return where ``request`` goes.

    Args:
        request: what is asked, of whom it could be asked, and what was before.
        classified: what a classifier proposes, where one was asked.
    """
    direct = parse(request.text)
    if direct is not None and direct.kind == "hub":
        return _hub(request, direct)
    if direct is not None and direct.kind in ("agents", "help"):
        reason = "it asks about this daemon itself"
        return Route(decision="direct_reply", confidence=SURE, reason=reason, rule="command", message=_about(request))
    if request.agent:
        return _to(request, request.agent.lower(), request.text, "named", "the caller named it")
    if direct is not None and direct.kind == "mention":
        return _to(request, direct.name, direct.rest or request.text, "mention", "the request begins with its name")
    open_ = [one for one in request.candidates if not one.denied and one.load < 1]
    if not open_:
        return _nobody(request)
    chosen = _remembered(request, open_) or _mentioned(request, open_) or _fitting(request, open_)
    if chosen is None or chosen.confidence < request.config.min_confidence:
        proposed = _classified(request, open_, classified) if classified is not None else None
        chosen = proposed or chosen or _default(request, open_)
    unsure = chosen.confidence < request.config.min_confidence and chosen.decision != "reject"
    if unsure or chosen.decision == "ask_human":
        return _question(request, chosen, open_)
    return chosen


def needs_classifier(request: RouteRequest) -> bool:
    """Tell whether the rules alone are too unsure, so that a classifier is worth asking."""
    route = decide(request)
    return route.rule == "default" or route.decision == "ask_human"


def answered(request: RouteRequest, options: Sequence[str], answer: str) -> Route | None:
    """Return the route that a person's answer to a question chooses, or None where it is none of the options.

    Args:
        request: the request that the question was about.
        options: between whom was to choose.
        answer: an option by its name, by ``@name``, or by its number, from 1.
    """
    given = chosen_option(options, answer).strip().lower().removeprefix("@")
    if given not in [option.lower() for option in options]:
        return None
    return _to(request, given, request.text, "answer", "a person chose it")


def unanswerable() -> Route:
    """Return the route of a request of which it is not clear after ``MAX_ROUNDS`` questions who should do it."""
    reason = f"after {MAX_ROUNDS} questions it is still not clear who should do this"
    return Route(decision="reject", confidence=SURE, reason=reason, rule="answer")


def chosen_option(options: Sequence[str], answer: str) -> str:
    """Return the option that ``answer`` names by its number, from 1; else the answer."""
    numbered = {str(number): option for number, option in enumerate(options, 1)}
    return numbered.get(answer.strip(), answer)


def _hub(request: RouteRequest, direct: Direct) -> Route:
    if not request.config.hub:
        return _rejected("hub", "/hub is switched off here (supervisor.hub in config.json)")
    known = {module.lower(): module for module in request.modules}
    if direct.name in known:
        return Route(
            decision="dispatch_module",
            target=known[direct.name],
            confidence=SURE,
            reason="the request names it by /hub",
            rule="hub",
            message=direct.rest,
        )
    there = ", ".join(sorted(known)[:20]) or "none"
    named = f"there is no module {direct.name[:80]!r}" if direct.name else "/hub names no module"
    return _rejected("hub", f"{named}; there are: {there}")


def _to(request: RouteRequest, agent_id: str, text: str, rule: str, why: str) -> Route:
    found = _known(request, agent_id)
    if found is None:
        candidates = [one.agent_id for one in request.candidates]
        near, there = did_you_mean(agent_id, candidates), ", ".join(candidates) or "none"
        return _rejected("named", f"there is no agent {agent_id[:80]!r} here{near or ';'} there are: {there}")
    if found.denied:
        return _rejected("named", f"agent {found.agent_id} is not for this caller: {found.denied}")
    return Route.model_validate(
        {
            "decision": "dispatch_agent",
            "target": found.agent_id,
            "confidence": SURE,
            "reason": why,
            "rule": rule,
            "message": text,
        }
    )


def _known(request: RouteRequest, agent_id: str) -> Candidate | None:
    return next((one for one in request.candidates if one.agent_id.lower() == agent_id), None)


def _nobody(request: RouteRequest) -> Route:
    if not request.candidates:
        return _rejected("none", "no agent is offered here: sublet up --agent FILE offers one")
    if all(one.denied for one in request.candidates):
        return _rejected("none", f"policy lets this caller have no agent: {request.candidates[0].denied}")
    return _rejected("none", "all agents that this caller may have are busy; ask again later")


def _remembered(request: RouteRequest, open_: Sequence[Candidate]) -> Route | None:
    last = request.last_route
    if not request.config.remember or last is None or last.decision != "dispatch_agent":
        return None
    found = next((one for one in open_ if one.agent_id == last.target), None)
    if found is None:
        return None
    own, best = _score(found, request.text), max(_score(one, request.text) for one in open_)
    if best > own or (mentions(request.text) & {one.agent_id for one in open_ if one is not found}):
        return None  # another one fits better this time
    confidence = REMEMBERED_CHANGED if request.snapshot_changed else REMEMBERED
    return _agent(request, found, confidence, "remembered", "the session's request before this one went there")


def _mentioned(request: RouteRequest, open_: Sequence[Candidate]) -> Route | None:
    named = [one for one in open_ if one.agent_id in mentions(request.text)]
    if len(named) == 1:
        return _agent(request, named[0], 0.85, "mention", "the request mentions it")
    if named:
        return _agent(request, named[0], AMBIGUOUS, "mention", "the request mentions several agents")
    return None


def _fitting(request: RouteRequest, open_: Sequence[Candidate]) -> Route | None:
    if len(open_) == len(request.candidates) == 1:
        return _agent(request, open_[0], ONLY, "only", "it is the only agent here")
    scores = {one.agent_id: _score(one, request.text) for one in open_}
    best = max(scores.values())
    if best <= 0:
        return None
    fitting = [one for one in open_ if scores[one.agent_id] == best]
    # A lighter load counts from a quarter on: two agents that are nearly alike busy are alike.
    ranked = sorted(fitting, key=lambda one: (one.cost, -one.trust, round(one.load * 4), not _preferred(request, one)))
    first = ranked[0]
    others = [score for agent_id, score in scores.items() if agent_id != first.agent_id]
    margin = (best - max(others, default=0.0)) / best
    told = ", ".join(sorted(_matched(first, request.text))[:5])
    if len(ranked) == 1:
        return _agent(request, first, min(0.95, 0.55 + 0.4 * margin), "skills", f"its skills fit: {told}")
    second = ranked[1]
    if (first.cost, first.trust) != (second.cost, second.trust):
        why = "it costs less" if first.cost != second.cost else "it is trusted more"
        return _agent(request, first, 0.6, "skills", f"its skills fit as well as another's ({told}), and {why}")
    if round(first.load * 4) != round(second.load * 4):
        return _agent(
            request, first, 0.55, "skills", f"its skills fit as well as another's ({told}), and it is less busy"
        )
    if _preferred(request, first) != _preferred(request, second):
        return _agent(request, first, 0.5, "skills", f"its skills fit ({told}), and it is of the default provider")
    return _agent(request, first, AMBIGUOUS, "skills", f"the skills of several agents fit alike: {told}")


def _default(request: RouteRequest, open_: Sequence[Candidate]) -> Route:
    wanted = request.config.default_route
    if wanted == "reject":
        return _rejected("default", "nothing here fits, and the default route is to reject")
    if wanted == "ask_human":
        return _asking("default", "nothing here fits, and the default route is to ask")
    if wanted:
        found = next((one for one in open_ if one.agent_id == wanted), None)
        if found is None:
            return _rejected("default", f"nothing here fits, and the default agent {wanted} is not to be had")
        return _agent(request, found, DEFAULT, "default", "nothing fits better, and it is the default route")
    preferred = [one for one in open_ if _preferred(request, one)]
    return _agent(
        request, (preferred or open_)[0], DEFAULT, "default", "nothing fits better, and it is the default agent"
    )


def _classified(request: RouteRequest, open_: Sequence[Candidate], found: Classification) -> Route | None:
    """Return a proposal as a route, as far as it names what is there and allowed: it can grant nothing."""
    why = f"a classifier says: {found.reason}" if found.reason else "a classifier says so"
    match found.decision:
        case "dispatch_agent":
            target = next((one for one in open_ if one.agent_id == found.target), None)
            return None if target is None else _agent(request, target, found.confidence, "classifier", why)
        case "direct_reply" if found.reply:
            return Route(
                decision="direct_reply", confidence=found.confidence, reason=why, rule="classifier", message=found.reply
            )
        case "reject":
            return Route(decision="reject", confidence=found.confidence, reason=why, rule="classifier")
        case "ask_human":
            return _asking("classifier", why)
    return None  # modules are reached by /hub alone, which a person writes


def _question(request: RouteRequest, unsure: Route, open_: Sequence[Candidate]) -> Route:
    fitting = [one for one in open_ if _score(one, request.text) > 0] or open_
    ranked = sorted(fitting, key=lambda one: -_score(one, request.text))[:MAX_OPTIONS]
    options = tuple(one.agent_id for one in ranked)
    listed = ", ".join(f"{number} {option}" for number, option in enumerate(options, 1))
    return Route(
        decision="ask_human",
        confidence=unsure.confidence,
        reason=unsure.reason,
        rule=unsure.rule,
        message=f"Which agent should do this? {listed}",
        options=options,
    )


def _agent(request: RouteRequest, candidate: Candidate, confidence: float, rule: str, reason: str) -> Route:
    return Route.model_validate(
        {
            "decision": "dispatch_agent",
            "target": candidate.agent_id,
            "confidence": confidence,
            "reason": reason[:500],
            "rule": rule,
            "message": request.text,
        }
    )


def _asking(rule: str, reason: str) -> Route:
    """Return the route to a person, without the question yet."""
    return Route.model_validate({"decision": "ask_human", "confidence": 0, "reason": reason, "rule": rule})


def _rejected(rule: str, reason: str) -> Route:
    return Route.model_validate({"decision": "reject", "confidence": SURE, "reason": reason[:500], "rule": rule})


def _preferred(request: RouteRequest, candidate: Candidate) -> bool:
    return bool(request.config.default_provider) and candidate.provider == request.config.default_provider


def _score(candidate: Candidate, text: str) -> float:
    asked = words(text) - _COMMON
    score = 0.0
    for skill in candidate.skills:
        tags = {word for tag in skill.tags for word in words(tag)} - _COMMON
        names = (words(skill.id) | words(skill.name)) - _COMMON
        described = words(skill.description) - _COMMON
        score += TAG_WEIGHT * len(asked & tags) + NAME_WEIGHT * len(asked & (names - tags))
        score += DESCRIPTION_WEIGHT * len(asked & (described - names - tags))
    return score


def _matched(candidate: Candidate, text: str) -> set[str]:
    known = {
        word
        for skill in candidate.skills
        for part in (skill.id, skill.name, skill.description, *skill.tags)
        for word in words(part)
    }
    return words(text) & (known - _COMMON)


def _about(request: RouteRequest) -> str:
    lines = []
    for candidate in request.candidates:
        if candidate.denied:
            lines.append(f"{candidate.agent_id}: not for you: {candidate.denied}")
            continue
        skills = "; ".join(skill.name or skill.id for skill in candidate.skills) or "no skills told"
        lines.append(f"{candidate.agent_id}{' (busy)' if candidate.load >= 1 else ''}: {skills}")
    agents = "\n".join(lines) or "No agent is offered here."
    modules = f"\nModules: {', '.join(request.modules)}" if request.modules and request.config.hub else ""
    return f"{agents}{modules}\nWrite @AGENT first to choose one" + (
        ", or /hub MODULE for a module." if modules else "."
    )
