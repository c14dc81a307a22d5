//! An NFS mount: how the client talks to the server, and through which card.

use std::net::IpAddr;
use std::path::Path;

use serde::Serialize;

use super::mounts::Mount;
use super::net::{Interface, interface_to};
use super::root::{Fact, SysRoot, Unknown, fact};

/// The mount table's facts about an NFS mount, and the route to its server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NfsMount {
    /// Name of the server as it was mounted.
    pub server: String,
    /// What the server exports.
    pub export: String,
    /// Address of the server; `None` if the table has no numeric one.
    pub address: Option<IpAddr>,
    /// `3`, `4.1`, `4.2`.
    pub version: Option<String>,
    /// `tcp`, `rdma`, `udp`; with a 6 behind it over IPv6.
    pub proto: Option<String>,
    /// Connections to the server; `None` if no number was requested, which means one.
    pub nconnect: Option<u32>,
    /// Longest read in bytes.
    pub rsize_bytes: Option<u64>,
    /// Longest write in bytes.
    pub wsize_bytes: Option<u64>,
    /// What the kernel reads ahead on this mount, in bytes.
    pub read_ahead_bytes: Option<u64>,
    /// The interface by which packets to the server leave.
    #[serde(serialize_with = "fact")]
    pub interface: Fact<Interface>,
}

impl NfsMount {
    /// What is known of a mount; `None` if it is not an NFS mount.
    pub fn of(root: &SysRoot, mount: &Mount) -> Option<NfsMount> {
        if !mount.is_nfs() {
            return None;
        }
        let (server, export) = split_source(&mount.source);
        let number = |name: &str| mount.option(name)?.parse().ok();
        let address = mount.option("addr").and_then(|address| {
            // A link-local address has its interface behind a percent sign.
            address.split('%').next()?.parse().ok()
        });
        Some(NfsMount {
            interface: interface_of(root, &server, address),
            server,
            export,
            address,
            version: mount.option("vers").map(str::to_string),
            proto: mount.option("proto").map(str::to_string),
            nconnect: number("nconnect").and_then(|n: u64| u32::try_from(n).ok()),
            rsize_bytes: number("rsize"),
            wsize_bytes: number("wsize"),
            read_ahead_bytes: read_ahead_bytes(root, mount.device),
        })
    }

    /// Whether bytes come by RDMA.
    pub fn is_rdma(&self) -> bool {
        self.proto.as_deref().is_some_and(|proto| proto.starts_with("rdma"))
    }
}

fn interface_of(root: &SysRoot, server: &str, address: Option<IpAddr>) -> Fact<Interface> {
    let address = address.ok_or_else(|| {
        Unknown::not_published(
            format!("the way to {server}"),
            "the mount table has no numeric address of the server",
        )
    })?;
    interface_to(root, address)
}

/// `server:/export`; an IPv6 server stands in brackets.
fn split_source(source: &str) -> (String, String) {
    let split = match source.strip_prefix('[').and_then(|rest| rest.split_once("]:")) {
        Some(parts) => Some(parts),
        None => source.split_once(':'),
    };
    let (server, export) = split.unwrap_or((source, ""));
    (server.to_string(), export.to_string())
}

/// Read-ahead of a filesystem without block device, from its backing device information.
fn read_ahead_bytes(root: &SysRoot, (major, minor): (u32, u32)) -> Option<u64> {
    let file = Path::new("/sys/class/bdi").join(format!("{major}:{minor}/read_ahead_kb"));
    root.parsed::<u64>(file).ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::system::mounts::mount_of;
    use crate::system::testing::Tree;

    const TABLE: &str = "\
27 1 259:2 / / rw,relatime - ext4 /dev/nvme0n1p2 rw
60 27 0:58 / /mnt/rdma rw,relatime shared:99 - nfs4 store:/tables rw,vers=4.2,rsize=1048576,wsize=524288,namlen=255,hard,proto=rdma,nconnect=16,port=20049,timeo=600,retrans=2,sec=sys,clientaddr=10.0.0.9,local_lock=none,addr=10.0.0.1
61 27 0:59 / /mnt/tcp rw,relatime - nfs 10.9.9.9:/exports/my\\040logs rw,vers=3,rsize=65536,wsize=65536,proto=tcp,mountaddr=10.9.9.9,mountvers=3,mountproto=udp,addr=10.9.9.9
62 27 0:61 / /mnt/six rw - nfs4 [fd00::7]:/ rw,vers=4.1,proto=tcp6,addr=fd00::7%ens1
";

    fn nfs(tree: &Tree, path: &str) -> NfsMount {
        let mount = mount_of(&tree.root(), Path::new(path)).unwrap();
        NfsMount::of(&tree.root(), &mount).unwrap()
    }

    #[test]
    fn rdma_with_sixteen_connections() {
        let tree = Tree::new();
        tree.mountinfo(TABLE).file("/sys/class/bdi/0:58/read_ahead_kb", "128\n");
        tree.file("/sys/class/net/ens1/mtu", "4200\n");
        tree.file("/proc/net/route", "header\nens1 0000000A 00000000 0001 0 0 0 00FFFFFF 0 0 0\n");
        let found = nfs(&tree, "/mnt/rdma/a.arrow");
        assert_eq!((found.server.as_str(), found.export.as_str()), ("store", "/tables"));
        assert_eq!(found.version.as_deref(), Some("4.2"));
        assert!(found.is_rdma());
        assert_eq!(found.nconnect, Some(16));
        assert_eq!((found.rsize_bytes, found.wsize_bytes), (Some(1 << 20), Some(1 << 19)));
        assert_eq!(
            (found.interface.as_ref().unwrap().mtu, found.read_ahead_bytes),
            (Some(4200), Some(128 << 10))
        );
    }

    #[test]
    fn tcp_without_a_route() {
        let tree = Tree::new();
        tree.mountinfo(TABLE);
        let found = nfs(&tree, "/mnt/tcp/x");
        assert_eq!(found.export, "/exports/my logs");
        assert_eq!((found.version.as_deref(), found.proto.as_deref()), (Some("3"), Some("tcp")));
        assert_eq!((found.nconnect, found.is_rdma()), (None, false));
        assert!(found.interface.unwrap_err().is_missing());
    }

    #[test]
    fn a_server_by_ipv6_and_a_mount_that_is_not_nfs() {
        let tree = Tree::new();
        tree.mountinfo(TABLE);
        let found = nfs(&tree, "/mnt/six");
        assert_eq!((found.server.as_str(), found.export.as_str()), ("fd00::7", "/"));
        assert_eq!(found.address, Some("fd00::7".parse().unwrap()));
        let mount = mount_of(&tree.root(), Path::new("/")).unwrap();
        assert_eq!(NfsMount::of(&tree.root(), &mount), None);
    }
}
