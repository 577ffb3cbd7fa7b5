"""How rows come into a step: read, judged, tagged and keyed, from the outside and from the results of queries."""
