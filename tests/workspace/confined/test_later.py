"""What has to be found out first: at once for the patient, by somebody else for all others."""

from __future__ import annotations

import pytest

from sublet.workspace.confined.later import NotKnownYet, need


def test_the_patient_find_out_at_once_and_others_are_told_how() -> None:
    done: list[str] = []

    def learn() -> None:
        done.append("learned")

    def drop() -> None:
        done.append("dropped")

    need(learn, drop, patient=True)
    assert done == ["learned"]
    with pytest.raises(NotKnownYet) as asked:
        need(learn, drop, patient=False)
    assert done == ["learned"]
    asked.value.drop()
    asked.value.learn()
    assert done == ["learned", "dropped", "learned"]
