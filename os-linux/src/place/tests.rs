//! Over a tree like sysfs in a folder.

use std::os::unix::fs::symlink;

use super::*;

/// Two nodes; a card with two ports behind a root port of the second, a virtual function of it; a card behind
/// the same root port; one at the root complex with an unknown node; a virtual interface.
fn machine(name: &str, cpus: &str) -> Machine {
    let root = std::env::temp_dir().join(format!("rerail-place-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&root);
    let sys = root.join("sys");
    let write = |path: &str, text: &str| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("sys/devices/system/node/online", "0-1\n");
    write("sys/devices/system/node/node0/cpulist", "0-3\n");
    write("sys/devices/system/node/node1/cpulist", "4-6,7\n");
    write("sys/devices/system/node/node0/distance", "10 21\n");
    write("sys/devices/system/node/node1/distance", "22 10\n");
    write("status", &format!("Name:\tx\nCpus_allowed_list:\t{cpus}\n"));
    let behind = "sys/devices/pci0000:ae/0000:ae:00.0";
    for (function, node) in [("0000:af:00.0", 1), ("0000:af:00.1", 1), ("0000:af:01.0", 1), ("0000:b0:00.0", 1)] {
        write(&format!("{behind}/{function}/numa_node"), &format!("{node}\n"));
    }
    symlink("../0000:af:00.1", root.join(format!("{behind}/0000:af:01.0/physfn"))).unwrap();
    write("sys/devices/pci0000:00/0000:00:03.0/numa_node", "-1\n");
    write("sys/devices/pci0000:00/0000:00:03.0/virtio2/driver", "");
    let interfaces = [
        ("p0", Some("pci0000:ae/0000:ae:00.0/0000:af:00.0"), "0"),
        ("p1", Some("pci0000:ae/0000:ae:00.0/0000:af:00.1"), "0"),
        ("p1v", Some("pci0000:ae/0000:ae:00.0/0000:af:01.0"), "0"),
        ("q0", Some("pci0000:ae/0000:ae:00.0/0000:b0:00.0"), "0"),
        ("q1", Some("pci0000:ae/0000:ae:00.0/0000:b0:00.0"), "1"),
        ("virt", Some("pci0000:00/0000:00:03.0/virtio2"), "0"),
        ("lo", None, "0"),
    ];
    for (name, device, port) in interfaces {
        write(&format!("sys/class/net/{name}/dev_port"), port);
        if let Some(device) = device {
            symlink(sys.join("devices").join(device), sys.join("class/net").join(name).join("device")).unwrap();
        }
    }
    Machine { sys, status: root.join("status") }
}

#[test]
fn shared_hardware_of_interfaces_follows_from_their_bus_path() {
    let machine = machine("shared", "4-5");
    let mut numbers = Numbers::default();
    let mut places =
        |names: &[&str]| -> Vec<Place> { names.iter().map(|name| numbers.place(&machine.interface(name))).collect() };
    let place = |port, hca, bus| Place { port, hca, bus };
    assert_eq!(
        places(&["p0", "p1", "p1v", "q0", "q1", "virt", "lo"]),
        [
            place(1, 1, 1),
            place(2, 1, 1),
            // The same port, for it is a part of it.
            place(2, 1, 1),
            place(3, 2, 1),
            place(4, 2, 1),
            place(5, 3, 0),
            place(0, 0, 0)
        ]
    );
    assert_eq!(machine.interface("p1v").describe().as_deref(), Some("0000:ae:00.0 > 0000:af:00"));
    assert_eq!(machine.interface("virt").describe().as_deref(), Some("0000:00:03"));
    assert_eq!((machine.interface("lo"), machine.interface("lo").describe()), (Device::default(), None));
}

#[test]
fn distances_are_the_kernels() {
    for (cpus, expected) in [("4", 10), ("4-7", 10), ("0,2", 21), ("0-7", 0), ("3-4", 0), ("", 0), ("x", 0)] {
        let machine = machine(&format!("distance-{}", cpus.replace(',', "-")), cpus);
        let device = machine.interface("p0");
        assert_eq!((device.numa_node, device.numa_distance), (Some(1), expected), "{cpus}");
        // The node of this one is unknown.
        assert_eq!((machine.interface("virt").numa_node, machine.interface("virt").numa_distance), (None, 0));
    }
    let machine = machine("one-node", "0-1");
    fs::write(machine.sys.join("devices/system/node/online"), "0\n").unwrap();
    assert_eq!(machine.interface("virt").numa_distance, NUMA_LOCAL);
}

#[test]
fn interface_without_a_device_has_a_default_place() {
    assert_eq!(Device::of_interface("lo"), Device::default());
    assert_eq!(Device::of_interface("no-such-interface"), Device::default());
}

#[test]
fn only_pci_functions_count() {
    for (name, is) in [("0000:af:00.1", true), ("10000:af:00.1", true), ("pci0000:ae", false), ("virtio2", false)] {
        assert_eq!(is_pci_function(Path::new("/sys/devices").join(name).as_path()), is, "{name}");
    }
    assert_eq!(list("0-2,5,x,7-"), [0, 1, 2, 5]);
}
