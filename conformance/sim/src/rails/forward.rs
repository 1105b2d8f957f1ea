//! Rails around rails: what a wrapper does not change, it hands on. All of it is here, so that none forgets a
//! method that has a default.

/// Implements the named methods of `rerail_linux::rail::Rail` by handing them on to `self.inner`, and those
/// that every wrapper hands on.
macro_rules! forward {
    ($($method:ident),* $(,)?) => {
        $crate::rails::forward::forward!(
            only name, address, trust, public_key, adopt, offer, expose, withdraw, is_closing, wait_fd, wait_fd_changes, arm, disarm, remark,
            counters, usage, $($method),*
        );
    };
    (only $($method:ident),* $(,)?) => { $( $crate::rails::forward::forward!(@$method); )* };
    (@name) => { fn name(&self) -> &str { self.inner.name() } };
    (@facts) => { fn facts(&self) -> rerail_core::rail::RailFacts { self.inner.facts() } };
    (@address) => { fn address(&self) -> String { self.inner.address() } };
    (@add_peer) => {
        fn add_peer(
            &mut self,
            peer: rerail_core::ids::PeerId,
            address: &str,
        ) -> Result<bool, rerail_linux::rail::AddressError> {
            self.inner.add_peer(peer, address)
        }
    };
    (@trust) => {
        fn trust(&mut self, peer: rerail_core::ids::PeerId, key: &rerail_linux::auth::PeerKey) {
            self.inner.trust(peer, key);
        }
    };
    (@public_key) => {
        fn public_key(&self) -> Option<rerail_linux::auth::PublicKey> { self.inner.public_key() }
    };
    (@connect) => {
        fn connect(&mut self, now: rerail_core::time::Time, peer: rerail_core::ids::PeerId) {
            self.inner.connect(now, peer);
        }
    };
    (@disconnect) => {
        fn disconnect(&mut self, peer: rerail_core::ids::PeerId) { self.inner.disconnect(peer); }
    };
    (@abort) => {
        fn abort(&mut self, peer: rerail_core::ids::PeerId) { self.inner.abort(peer); }
    };
    (@post) => {
        unsafe fn post(&mut self, outgoing: rerail_linux::rail::Outgoing<'_>) {
            // SAFETY: the caller's promise is the one demanded.
            unsafe { self.inner.post(outgoing) }
        }
    };
    (@post_small) => {
        unsafe fn post_small(&mut self, outgoing: rerail_linux::rail::Outgoing<'_>) -> bool {
            // SAFETY: the caller's promise is the one demanded.
            unsafe { self.inner.post_small(outgoing) }
        }
    };
    (@post_short) => {
        unsafe fn post_short(
            &mut self,
            peer: rerail_core::ids::PeerId,
            short: &rerail_core::wire::Short,
            payload: *const u8,
        ) -> bool {
            // SAFETY: the caller's promise is the one demanded.
            unsafe { self.inner.post_short(peer, short, payload) }
        }
    };
    (@register) => {
        unsafe fn register(
            &mut self,
            memory: rerail_linux::rail::Piece,
            write: bool,
        ) -> Result<rerail_linux::rail::MemoryKey, rerail_core::endpoint::RailFault> {
            // SAFETY: the caller's promise is the one demanded.
            unsafe { self.inner.register(memory, write) }
        }
    };
    (@deregister) => { fn deregister(&mut self, key: rerail_linux::rail::MemoryKey) { self.inner.deregister(key); } };
    (@forget) => { fn forget(&mut self, memory: rerail_linux::rail::Piece) { self.inner.forget(memory); } };
    (@adopt) => {
        fn adopt(&mut self, memory: rerail_linux::rail::Piece, is_over: bool) { self.inner.adopt(memory, is_over); }
    };
    (@offer) => {
        fn offer(&mut self, memory: rerail_linux::rail::Piece, file: std::os::fd::BorrowedFd<'_>, is_writable: bool) {
            self.inner.offer(memory, file, is_writable);
        }
    };
    (@expose) => {
        fn expose(
            &mut self,
            key: u64,
            memory: rerail_linux::rail::Piece,
            access: rerail_core::endpoint::Access,
        ) {
            self.inner.expose(key, memory, access);
        }
    };
    (@withdraw) => { fn withdraw(&mut self, key: u64) -> bool { self.inner.withdraw(key) } };
    (@access) => {
        unsafe fn access(&mut self, access: &rerail_linux::rail::DirectAccess<'_>) -> bool {
            // SAFETY: the caller's promise is the one demanded.
            unsafe { self.inner.access(access) }
        }
    };
    (@next_timeout) => { fn next_timeout(&self) -> Option<rerail_core::time::Time> { self.inner.next_timeout() } };
    (@is_closing) => { fn is_closing(&self) -> bool { self.inner.is_closing() } };
    (@wait_fd) => { fn wait_fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> { self.inner.wait_fd() } };
    (@wait_fd_changes) => { fn wait_fd_changes(&self) -> u32 { self.inner.wait_fd_changes() } };
    (@arm) => { fn arm(&mut self) -> bool { self.inner.arm() } };
    (@disarm) => { fn disarm(&mut self) { self.inner.disarm(); } };
    (@remark) => {
        fn remark(&self, peer: rerail_core::ids::PeerId) -> Option<String> { self.inner.remark(peer) }
    };
    (@counters) => { fn counters(&self) -> rerail_linux::rail::RailCounters { self.inner.counters() } };
    (@usage) => { fn usage(&self) -> rerail_linux::rail::RailUsage { self.inner.usage() } };
}

/// Implements the named methods of `rerail_linux::rail::Sink` by handing them on to `self.sink`, and those
/// that every wrapper hands on.
macro_rules! forward_sink {
    ($($method:ident),* $(,)?) => {
        fn place(
            &mut self,
            id: rerail_core::ids::PlaceId,
            from: u64,
            pieces: &mut Vec<rerail_linux::rail::Piece>,
        ) -> bool {
            self.sink.place(id, from, pieces)
        }

        fn short_packet(
            &mut self,
            peer: rerail_core::ids::PeerId,
            short: &rerail_core::wire::Short,
        ) -> rerail_core::endpoint::Arrival {
            self.sink.short_packet(peer, short)
        }

        fn queued(&mut self, peer: rerail_core::ids::PeerId) { self.sink.queued(peer); }
        $( $crate::rails::forward::forward_sink!(@$method); )*
    };
    (@placed) => { fn placed(&mut self, id: rerail_core::ids::PlaceId) { self.sink.placed(id); } };
    (@short) => {
        fn short(
            &mut self,
            peer: rerail_core::ids::PeerId,
            short: &rerail_core::wire::Short,
        ) -> rerail_linux::rail::ShortPlace {
            self.sink.short(peer, short)
        }
    };
    (@up) => { fn up(&mut self, peer: rerail_core::ids::PeerId) { self.sink.up(peer); } };
    (@no_remote_access) => {
        fn no_remote_access(&mut self, peer: rerail_core::ids::PeerId) { self.sink.no_remote_access(peer); }
    };
    (@registered) => {
        fn registered(
            &mut self,
            what: rerail_core::endpoint::Registration,
            bytes: u64,
            took: rerail_core::time::Nanos,
        ) {
            self.sink.registered(what, bytes, took);
        }
    };
    (@reset) => { fn reset(&mut self) { self.sink.reset(); } };
    (@moved) => { fn moved(&mut self) { self.sink.moved(); } };
    (@back) => { fn back(&mut self) { self.sink.back(); } };
}

pub(crate) use {forward, forward_sink};
