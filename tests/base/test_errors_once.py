"""One class for each meaning of a refusal: no name stands for two, none is made twice."""

from portal.base.errors import DomainError

APPS = ("portal", "staging", "jobs", "nodes")


def _below(kind: type) -> set[type]:
    return {kind}.union(*(_below(child) for child in kind.__subclasses__()))


def test_no_two_refusals_have_one_name():
    import portal.urls  # noqa: F401  all doors, and so all refusals, are loaded

    ours = [kind for kind in _below(DomainError) if kind.__module__.split(".")[0] in APPS]
    names = [kind.__name__ for kind in ours]
    assert len(names) > 20
    assert sorted({name for name in names if names.count(name) > 1}) == []
