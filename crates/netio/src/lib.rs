//! Every system call and every unsafe line of farwire: ports, trains, namespaces, clocks, offloads.

