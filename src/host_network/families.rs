//! The families in which a command may reach the host, for tests.

use netio::iface::DefaultRoutes;

pub(super) const BOTH: DefaultRoutes = DefaultRoutes { v4: true, v6: true };
pub(super) const V4: DefaultRoutes = DefaultRoutes {
    v4: true,
    v6: false,
};
pub(super) const V6: DefaultRoutes = DefaultRoutes {
    v4: false,
    v6: true,
};
