//! The hand-written interface against the C headers: sizes, offsets, numbers. Without a C compiler or
//! libfabric's headers the test compares nothing, and reports that; `conformance/scripts/ofi.sh` requires
//! both.

use std::fmt::Write as _;
use std::mem::offset_of;
use std::path::Path;
use std::process::Command;

use rerail_fi::abi::data::*;
use rerail_fi::abi::info::*;
use rerail_fi::abi::object::*;
use rerail_fi::abi::{NUMBERS, TAG_FORMAT};

/// C expressions, each with the number that it must have.
type Expected = Vec<(String, u64)>;

/// A structure: its size, or at least that (`front`), and the offset of each field. `ours = theirs` where
/// names differ.
macro_rules! structure {
    ($into:ident, $ours:ident, $theirs:literal, $($field:ident $(= $other:literal)?),*) => {
        $into.push((format!("sizeof({})", $theirs), size_of::<$ours>() as u64));
        $(
            #[allow(unused_mut, unused_assignments)]
            let mut name = stringify!($field);
            $(name = $other;)?
            $into.push((format!("offsetof({}, {name})", $theirs), offset_of!($ours, $field) as u64));
        )*
    };
}

fn expected() -> Expected {
    let mut all: Expected = NUMBERS.iter().map(|(name, value)| (name.to_string(), *value)).collect();
    all.push(("FI_TAG_GENERIC".into(), TAG_FORMAT));
    structure!(
        all,
        Info,
        "struct fi_info",
        next,
        caps,
        mode,
        addr_format,
        src_addrlen,
        dest_addrlen,
        src_addr,
        dest_addr,
        handle,
        tx_attr,
        rx_attr,
        ep_attr,
        domain_attr,
        fabric_attr,
        nic
    );
    structure!(
        all,
        TxAttr,
        "struct fi_tx_attr",
        caps,
        mode,
        op_flags,
        msg_order,
        comp_order,
        inject_size,
        size,
        iov_limit,
        rma_iov_limit,
        tclass
    );
    structure!(
        all,
        RxAttr,
        "struct fi_rx_attr",
        caps,
        mode,
        op_flags,
        msg_order,
        comp_order,
        total_buffered_recv,
        size,
        iov_limit
    );
    structure!(
        all,
        EpAttr,
        "struct fi_ep_attr",
        ep_type = "type",
        protocol,
        protocol_version,
        max_msg_size,
        msg_prefix_size,
        max_order_raw_size,
        max_order_war_size,
        max_order_waw_size,
        mem_tag_format,
        tx_ctx_cnt,
        rx_ctx_cnt,
        auth_key_size,
        auth_key
    );
    structure!(
        all,
        DomainAttr,
        "struct fi_domain_attr",
        domain,
        name,
        threading,
        control_progress,
        data_progress,
        resource_mgmt,
        av_type,
        mr_mode,
        mr_key_size,
        cq_data_size,
        cq_cnt,
        ep_cnt,
        tx_ctx_cnt,
        rx_ctx_cnt,
        max_ep_tx_ctx,
        max_ep_rx_ctx,
        max_ep_stx_ctx,
        max_ep_srx_ctx,
        cntr_cnt,
        mr_iov_limit,
        caps,
        mode,
        auth_key,
        auth_key_size,
        max_err_data,
        mr_cnt,
        tclass
    );
    structure!(all, FabricAttr, "struct fi_fabric_attr", fabric, name, prov_name, prov_version, api_version);
    structure!(all, Provider, "struct fi_provider", version, fi_version, context, name, getinfo, fabric, cleanup);
    structure!(all, Msg, "struct fi_msg", msg_iov, desc, iov_count, addr, context, data);
    structure!(all, MsgTagged, "struct fi_msg_tagged", msg_iov, desc, iov_count, addr, tag, ignore, context, data);
    structure!(all, RmaIov, "struct fi_rma_iov", addr, len, key);
    structure!(all, RmaIoc, "struct fi_rma_ioc", addr, count, key);
    structure!(all, Ioc, "struct fi_ioc", addr, count);
    structure!(all, MsgRma, "struct fi_msg_rma", msg_iov, desc, iov_count, addr, rma_iov, rma_iov_count, context, data);
    structure!(
        all,
        MsgAtomic,
        "struct fi_msg_atomic",
        msg_iov,
        desc,
        iov_count,
        addr,
        rma_iov,
        rma_iov_count,
        datatype,
        op,
        context,
        data
    );
    structure!(all, AtomicAttr, "struct fi_atomic_attr", count, size);
    structure!(all, CqTaggedEntry, "struct fi_cq_tagged_entry", op_context, flags, len, buf, data, tag);
    structure!(
        all,
        CqErrEntry,
        "struct fi_cq_err_entry",
        op_context,
        flags,
        len,
        buf,
        data,
        tag,
        olen,
        err,
        prov_errno,
        err_data,
        err_data_size
    );
    structure!(all, CqAttr, "struct fi_cq_attr", size, flags, format, wait_obj, signaling_vector, wait_cond, wait_set);
    structure!(all, CntrAttr, "struct fi_cntr_attr", events, wait_obj, wait_set, flags);
    structure!(
        all,
        AvAttr,
        "struct fi_av_attr",
        av_type = "type",
        rx_ctx_bits,
        count,
        ep_per_node,
        name,
        map_addr,
        flags
    );
    structure!(all, EqAttr, "struct fi_eq_attr", size, flags, wait_obj, signaling_vector, wait_set);
    structure!(
        all,
        MrAttr,
        "struct fi_mr_attr",
        mr_iov,
        iov_count,
        access,
        offset,
        requested_key,
        context,
        auth_key_size,
        auth_key,
        iface,
        device
    );
    structure!(all, Fid, "struct fid", fclass, context, ops);
    structure!(all, FidFabric, "struct fid_fabric", fid, ops, api_version);
    structure!(all, FidDomain, "struct fid_domain", fid, ops, mr);
    structure!(all, FidAv, "struct fid_av", fid, ops);
    structure!(all, FidMr, "struct fid_mr", fid, mem_desc, key);
    structure!(all, FidCq, "struct fid_cq", fid, ops);
    structure!(all, FidCntr, "struct fid_cntr", fid, ops);
    structure!(all, FidEq, "struct fid_eq", fid, ops);
    structure!(all, FidEp, "struct fid_ep", fid, ops, cm, msg, rma, tagged, atomic, collective);
    structure!(all, Ops, "struct fi_ops", size, close, bind, control, ops_open, tostr, ops_set);
    structure!(all, FabricOps, "struct fi_ops_fabric", size, domain, passive_ep, eq_open, wait_open, trywait, domain2);
    structure!(
        all,
        DomainOps,
        "struct fi_ops_domain",
        size,
        av_open,
        cq_open,
        endpoint,
        scalable_ep,
        cntr_open,
        poll_open,
        stx_ctx,
        srx_ctx,
        query_atomic,
        query_collective,
        endpoint2
    );
    structure!(all, MrOps, "struct fi_ops_mr", size, reg, regv, regattr);
    structure!(all, AvOps, "struct fi_ops_av", size, insert, insertsvc, insertsym, remove, lookup, straddr, av_set);
    structure!(all, CqOps, "struct fi_ops_cq", size, read, readfrom, readerr, sread, sreadfrom, signal, strerror);
    structure!(all, CntrOps, "struct fi_ops_cntr", size, read, readerr, add, set, wait, adderr, seterr);
    structure!(all, EqOps, "struct fi_ops_eq", size, read, readerr, write, sread, strerror);
    structure!(
        all,
        EpOps,
        "struct fi_ops_ep",
        size,
        cancel,
        getopt,
        setopt,
        tx_ctx,
        rx_ctx,
        rx_size_left,
        tx_size_left
    );
    structure!(
        all,
        CmOps,
        "struct fi_ops_cm",
        size,
        setname,
        getname,
        getpeer,
        connect,
        listen,
        accept,
        reject,
        shutdown,
        join
    );
    structure!(
        all,
        MsgOps,
        "struct fi_ops_msg",
        size,
        recv,
        recvv,
        recvmsg,
        send,
        sendv,
        sendmsg,
        inject,
        senddata,
        injectdata
    );
    structure!(
        all,
        TaggedOps,
        "struct fi_ops_tagged",
        size,
        recv,
        recvv,
        recvmsg,
        send,
        sendv,
        sendmsg,
        inject,
        senddata,
        injectdata
    );
    structure!(
        all,
        RmaOps,
        "struct fi_ops_rma",
        size,
        read,
        readv,
        readmsg,
        write,
        writev,
        writemsg,
        inject,
        writedata,
        injectdata
    );
    structure!(
        all,
        AtomicOps,
        "struct fi_ops_atomic",
        size,
        write,
        writev,
        writemsg,
        inject,
        readwrite,
        readwritev,
        readwritemsg,
        compwrite,
        compwritev,
        compwritemsg,
        writevalid,
        readwritevalid,
        compwritevalid
    );
    structure!(
        all,
        CollectiveOps,
        "struct fi_ops_collective",
        size,
        barrier,
        broadcast,
        alltoall,
        allreduce,
        allgather,
        reduce_scatter,
        reduce,
        scatter,
        gather,
        msg,
        barrier2
    );
    all
}

const HEADERS: &str = "#include <stddef.h>\n#include <stdio.h>\n#include <rdma/fabric.h>\n#include <rdma/fi_atomic.h>\n\
    #include <rdma/fi_cm.h>\n#include <rdma/fi_collective.h>\n#include <rdma/fi_domain.h>\n\
    #include <rdma/fi_endpoint.h>\n#include <rdma/fi_eq.h>\n#include <rdma/fi_errno.h>\n#include <rdma/fi_rma.h>\n\
    #include <rdma/fi_tagged.h>\n#include <rdma/providers/fi_prov.h>\n\
    #ifndef FI_TAG_GENERIC\n#define FI_TAG_GENERIC 0xaaaaaaaaaaaaaaaaULL\n#endif\n";

fn compile(folder: &Path, name: &str, text: &str) -> Option<std::path::PathBuf> {
    let (source, program) = (folder.join(format!("{name}.c")), folder.join(name));
    std::fs::write(&source, text).expect("the test's folder can be written to");
    let compiled = Command::new("cc").arg("-o").args([&program, &source]).output().ok()?;
    if !compiled.status.success() {
        eprintln!("{}", String::from_utf8_lossy(&compiled.stderr));
    }
    compiled.status.success().then_some(program)
}

#[test]
fn the_interface_is_that_of_the_headers() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    if compile(folder, "probe", &format!("{HEADERS}int main(void) {{ return 0; }}\n")).is_none() {
        // The script that runs unmodified runtimes counts this as a failure.
        println!("absent: a C compiler, or libfabric's headers");
        return;
    }
    let expected = expected();
    assert!(expected.len() > 400, "the list is whole");
    let mut text = format!("{HEADERS}int main(void) {{\n");
    for (expression, _) in &expected {
        writeln!(text, "    printf(\"%llu\\n\", (unsigned long long)({expression}));").expect("a String takes all");
    }
    text.push_str("    return 0;\n}\n");
    let program = compile(folder, "layout", &text).expect("every name is one of the headers'");
    let output = Command::new(program).output().expect("it runs").stdout;
    let found: Vec<u64> =
        String::from_utf8_lossy(&output).lines().map(|line| line.parse().expect("a number")).collect();
    assert_eq!(found.len(), expected.len());
    let wrong: Vec<String> = expected
        .iter()
        .zip(&found)
        .filter(|((_, ours), theirs)| ours != *theirs)
        .map(|((expression, ours), theirs)| format!("{expression}: {ours} here, {theirs} in C"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    println!("compared {} sizes, offsets and numbers", found.len());
}
