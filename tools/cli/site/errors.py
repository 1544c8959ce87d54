"""The errors of a site's folder.

::

    SiteError         what was asked for cannot be done; nothing was given or ended
    └── NameTaken     a device, a gateway or an account has the name already
"""

from host.errors import HostError


class SiteError(HostError):
    """A site's folder, a name or a certificate cannot be used; the text says which, and what was expected."""


class NameTaken(SiteError):
    """A name was given already, or belongs to an account or rules that this site has not made."""
