"""The supervisor in the daemon: sessions, agents and what they are asked, behind one service."""
