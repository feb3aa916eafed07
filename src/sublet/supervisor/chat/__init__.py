"""The provider ``model``: a chat model that works with tools, each of which is asked for before it acts."""
