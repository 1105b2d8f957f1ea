//! Choosing a port and a GID.

use super::{fake, open};
use crate::{ChoiceError, PortState};

#[test]
fn an_infiniband_port_is_chosen_with_its_first_gid() {
    let choice = open("mlx9_0").choose(None, None).unwrap();
    assert_eq!((choice.port.number, choice.gid_index), (1, 0));
}

#[test]
fn missing_port_or_gid_error_includes_a_remedy() {
    let context = open("mlx9_0");
    let error = context.choose(Some(3), None).unwrap_err();
    assert!(matches!(error, ChoiceError::NoPort { port: 3, ports: 2, .. }), "{error:?}");
    assert_eq!(
        (error.to_string().as_str(), error.remedy().as_str()),
        ("mlx9_0 has no port 3: it has 2", "choose a port from 1 to 2")
    );
    // The second port can't be queried.
    assert!(matches!(context.choose(Some(2), None), Err(ChoiceError::Query(_))));
    let error = context.choose(Some(1), Some(2)).unwrap_err();
    assert_eq!(error.to_string(), "mlx9_0 port 1: GID index 2 is not in use");
    assert!(error.remedy().contains("0 (fe80::2:c903:0:1234, InfiniBand)"), "{}", error.remedy());
}

#[test]
fn a_port_that_is_down_is_named_with_its_state() {
    let context = open("rxe9");
    let error = context.choose(None, None).unwrap_err();
    assert!(matches!(&error, ChoiceError::NoActivePort { ports, .. } if ports == &[(1, PortState::Down)]), "{error:?}");
    assert!(error.to_string().contains("1 is down") && error.remedy().contains("ip link set"), "{error}");
    let error = context.choose(Some(1), None).unwrap_err();
    assert_eq!(error.to_string(), "rxe9 port 1 is not active: it is down");
    assert!(error.remedy().contains("ip link set"));
    fake::set(|machine| machine.up = true);
    let choice = context.choose(None, None).unwrap();
    assert_eq!((choice.port.number, choice.gid_index), (1, 2), "the only one in use");
    assert!(context.choose(None, Some(0)).is_err());
    fake::set(|machine| machine.up = false);
}
