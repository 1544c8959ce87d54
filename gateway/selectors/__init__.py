"""Selectors: conditions on messages, in the grammar of Jakarta Messaging. A message passes if the condition is true."""

from gateway.selectors.lexer import BadSelector
from gateway.selectors.selector import Selector, parse_selector, passing

__all__ = ["BadSelector", "Selector", "parse_selector", "passing"]
