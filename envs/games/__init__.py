"""Games of two players as vector environments: the interface, adapters of libraries, and Warren's own."""
