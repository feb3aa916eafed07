"""The delegator's side: delegations from their creation to their audit."""
