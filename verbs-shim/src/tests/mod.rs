//! The safe types over a fake library; and over the real one as far as a machine without devices goes.

mod choice;
mod device;
mod fake;
mod offers;

use rdma_core_sys::{Functions, LoadError};

pub(crate) use fake::objects::{alive, script};

use crate::*;

pub(crate) fn open(name: &str) -> Context {
    Verbs::over(fake::FUNCTIONS).devices().unwrap().find(name).unwrap().open().unwrap()
}

#[test]
fn a_missing_library_names_the_packages_that_bring_it() {
    let error = OpenError::from(LoadError::NotFound { reason: "libibverbs.so.1: No such file".into() });
    assert!(matches!(error, OpenError::NotInstalled { .. }));
    let text = error.to_string();
    assert!(text.contains("libibverbs1") && text.contains("ibverbs-providers"), "{text}");
}

#[test]
fn a_library_that_cannot_be_loaded_is_not_taken_for_a_missing_one() {
    for error in [
        LoadError::Unloadable { reason: "wrong ELF class".into() },
        LoadError::NoSymbol { name: "ibv_open_device", version: "IBVERBS_1.1" },
    ] {
        let error = OpenError::from(error);
        assert!(matches!(error, OpenError::Unusable { .. }), "{error:?}");
        assert!(!error.to_string().contains("install "), "{error}");
    }
}

/// The system's state decides the outcome; none of them may be a panic or a misleading answer.
#[test]
fn system_verbs_library_opens_or_reports_why_not() {
    match Verbs::open() {
        Ok(verbs) => match verbs.devices() {
            Ok(devices) => assert_eq!(devices.iter().len(), devices.len()),
            Err(error) => assert!(error.errno().is_some(), "{error:?}"),
        },
        Err(error) => assert!(error.to_string().contains("libibverbs"), "{error}"),
    }
}

#[test]
fn fork_safety_is_enabled_if_the_library_supports_it() {
    assert!(Verbs::over(fake::FUNCTIONS).make_forks_safe().is_ok());
    fake::set(|machine| machine.fork_errno = libc::EINVAL);
    let refused = Verbs::over(fake::FUNCTIONS).make_forks_safe().unwrap_err();
    assert_eq!((refused.raw_os_error(), fake::machine().fork_inits), (Some(libc::EINVAL), 2));
    let old = Verbs::over(Functions { fork_init: None, ..fake::FUNCTIONS });
    assert_eq!(old.make_forks_safe().unwrap_err().raw_os_error(), Some(libc::ENOSYS));
}

#[test]
fn devices_are_listed_by_name_and_guid() {
    let devices = Verbs::over(fake::FUNCTIONS).devices().unwrap();
    let names: Vec<String> = devices.iter().map(|device| device.name()).collect();
    assert_eq!(names, ["mlx9_0", "rxe9"]);
    let (first, second) = (devices.find("mlx9_0").unwrap(), devices.find("rxe9").unwrap());
    assert_eq!(first.guid().to_string(), "0002:c903:0000:1234");
    assert_eq!(second.guid(), Guid::default());
    assert_eq!((first.node_kind(), first.transport()), (NodeKind::ChannelAdapter, Transport::InfiniBand));
    assert_eq!(second.transport(), Transport::Other(99));
    assert_eq!(second.node_path(), "/dev/infiniband/uverbs1");
    assert!(devices.find("mlx9_1").is_none());
}

/// Node kind and transport of rdma-core's table (`decode_transport` and the drivers that set them).
#[test]
fn devices_of_other_transports_carry_no_rail() {
    for (node, transport, why) in [
        (NodeKind::ChannelAdapter, Transport::InfiniBand, None),
        (NodeKind::Rnic, Transport::Iwarp, Some(Foreign::Iwarp)),
        (NodeKind::Unspecified, Transport::Other(4), Some(Foreign::Vendor)),
        (NodeKind::Other(6), Transport::Other(3), Some(Foreign::Vendor)),
    ] {
        assert_eq!(Foreign::of(node, transport), why);
    }
}

#[test]
fn a_kernel_without_uverbs_has_no_devices() {
    fake::set(|machine| machine.list_errno = libc::ENOSYS);
    let devices = Verbs::over(fake::FUNCTIONS).devices().unwrap();
    assert!(devices.is_empty());
    assert_eq!(devices.iter().len(), 0);
    drop(devices);
    assert_eq!(fake::machine().lists, 0, "a list that never was must not be given back");
}

#[test]
fn a_listing_that_fails_otherwise_is_an_error() {
    fake::set(|machine| machine.list_errno = libc::EPERM);
    assert_eq!(Verbs::over(fake::FUNCTIONS).devices().unwrap_err().errno(), Some(libc::EPERM));
}

#[test]
fn all_that_is_handed_out_is_given_back() {
    let devices = Verbs::over(fake::FUNCTIONS).devices().unwrap();
    let context = devices.find("rxe9").unwrap().open().unwrap();
    assert_eq!((fake::machine().lists, fake::machine().contexts), (1, 1));
    drop(devices);
    assert_eq!((fake::machine().lists, fake::machine().contexts), (0, 1));
    assert_eq!(context.attributes().unwrap().ports, 1, "the context outlives the list");
    drop(context);
    assert_eq!((fake::machine().lists, fake::machine().contexts), (0, 0));
}

#[test]
fn a_refused_device_names_the_file_that_is_needed() {
    let refused = |errno| {
        fake::set(|machine| machine.open_errno = errno);
        Verbs::over(fake::FUNCTIONS).devices().unwrap().find("mlx9_0").unwrap().open().unwrap_err()
    };
    let (device, path) = (String::from("mlx9_0"), String::from("/dev/infiniband/uverbs0"));
    let denied = refused(libc::EACCES);
    assert_eq!(denied, DeviceError::PermissionDenied { device: device.clone(), path: path.clone() });
    assert!(denied.to_string().contains("/dev/infiniband/uverbs0"), "{denied}");
    assert_eq!(refused(libc::ENOENT), DeviceError::NoNode { device: device.clone(), path: path.clone() });
    assert_eq!(refused(libc::EBUSY), DeviceError::System { device, path, errno: libc::EBUSY });
    assert_eq!(fake::machine().contexts, 0);
}

#[test]
fn device_attributes_are_reported() {
    use crate::contract::Device;
    let attributes = open("mlx9_0").attributes().unwrap();
    assert_eq!(attributes.firmware, "20.31.1014");
    assert_eq!(attributes.node_guid.to_string(), "0002:c903:0000:1234");
    let limits = crate::IbDevice::new(open("mlx9_0")).unwrap().limits();
    assert_eq!((attributes.ports, limits.qps), (2, 131_072));
    assert_eq!((attributes.atomics, attributes.xrc), (AtomicReach::Device, true));
    assert_eq!(limits.srqs, 0, "a negative limit is none");
    assert_eq!(open("rxe9").attributes().unwrap().atomics, AtomicReach::Other(7));
}

#[test]
fn an_infiniband_port_has_lids() {
    let port = open("mlx9_0").port(1).unwrap();
    assert_eq!((port.state, port.link_layer), (PortState::Active, LinkLayer::InfiniBand));
    assert_eq!((port.lid, port.lmc, port.manager_lid, port.needs_global), (0x12, 2, 1, false));
    fake::set(|machine| machine.port_flags = rdma_core_sys::IBV_QPF_GRH_REQUIRED);
    assert!(open("mlx9_0").port(1).unwrap().needs_global);
    assert_eq!((port.mtu_bytes, port.mtu_bytes_max), (Some(2048), Some(4096)));
    assert_eq!((port.lanes, port.lane_mbit_per_second, port.mbit_per_second()), (Some(4), Some(25_000), Some(100_000)));
}

#[test]
fn unknown_port_codes_are_reported_as_none() {
    let port = open("rxe9").port(1).unwrap();
    assert_eq!((port.state, port.link_layer), (PortState::Down, LinkLayer::Ethernet));
    assert_eq!((port.lid, port.lmc, port.needs_global), (0, 0, false), "whatever the driver reports");
    assert_eq!((port.mtu_bytes, port.mtu_bytes_max), (None, None));
    assert_eq!((port.lanes, port.lane_mbit_per_second, port.mbit_per_second()), (None, Some(2_500), None));
}

#[test]
fn a_port_that_cannot_be_queried_is_named() {
    let context = open("mlx9_0");
    let error = context.ports().unwrap_err();
    assert_eq!((error.device(), error.port(), error.errno()), ("mlx9_0", Some(2), Some(libc::EIO)));
    assert!(error.to_string().starts_with("mlx9_0 port 2: "), "{error}");
    let each: Vec<_> = context.each_port().unwrap().map(|port| port.map_err(|why| why.port())).collect();
    assert_eq!(each, [Ok(context.port(1).unwrap()), Err(Some(2))], "the others are reported all the same");
    assert_eq!(open("rxe9").ports().unwrap().len(), 1);
    assert_eq!(context.port(3).unwrap_err().errno(), Some(libc::EINVAL));
}

/// By one call for the whole table, or one for each entry where that is not to be had: the same entries.
#[test]
fn only_gids_in_use_are_listed() {
    for (table, errno, calls) in [(true, 0, [1, 1]), (false, 0, [3, 4]), (true, libc::EOPNOTSUPP, [4, 5])] {
        fake::set(|machine| machine.gid_table_errno = errno);
        let functions = if table { fake::FUNCTIONS } else { Functions { query_gid_table: None, ..fake::FUNCTIONS } };
        let library = Verbs::over(functions);
        let devices = library.devices().unwrap();
        let device = |name: &str| devices.find(name).unwrap().open().unwrap();
        gids_in_use(&[device("mlx9_0"), device("rxe9")], calls);
    }
}

fn gids_in_use([infiniband, roce]: &[Context; 2], calls: [u32; 2]) {
    let before = fake::machine().gid_calls;
    let context = infiniband;
    let gids = context.gids(&context.port(1).unwrap()).unwrap();
    let gid = Gid(fake::INFINIBAND_GID);
    assert_eq!(gids, [GidEntry { index: 0, gid, kind: Some(GidKind::InfiniBand), interface: None }]);
    assert_eq!((gid.to_string().as_str(), gid.ipv4()), ("fe80::2:c903:0:1234", None));

    assert_eq!(fake::machine().gid_calls - before, calls[0]);

    let context = roce;
    let gids = context.gids(&context.port(1).unwrap()).unwrap();
    let gid = Gid(fake::ROCE_GID);
    assert_eq!(gids, [GidEntry { index: 2, gid, kind: Some(GidKind::RoceV2), interface: Some(5) }]);
    assert_eq!(gid.ipv4(), Some([192, 0, 2, 7].into()));
    assert_eq!(fake::machine().gid_calls - before - calls[0], calls[1]);
}

#[test]
fn old_library_reports_gids_without_their_kind() {
    let old = Verbs::over(Functions { query_gid_ex: None, query_gid_table: None, ..fake::FUNCTIONS });
    let devices = old.devices().unwrap();
    let kinds = |name: &str| {
        let context = devices.find(name).unwrap().open().unwrap();
        let gids = context.gids(&context.port(1).unwrap()).unwrap();
        gids.iter().map(|entry| (entry.index, entry.kind)).collect::<Vec<_>>()
    };
    assert_eq!(kinds("mlx9_0"), [(0, Some(GidKind::InfiniBand))]);
    assert_eq!(kinds("rxe9"), [(2, None)]);
}

#[test]
fn a_gid_that_cannot_be_read_is_named() {
    fake::set(|machine| (machine.gid_errno, machine.gid_table_errno) = (libc::EIO, libc::EIO));
    let context = open("rxe9");
    let error = context.gids(&context.port(1).unwrap()).unwrap_err();
    assert_eq!((error.port(), error.errno()), (Some(1), Some(libc::EIO)));
    assert!(error.to_string().contains("GID 2"), "{error}");
}
