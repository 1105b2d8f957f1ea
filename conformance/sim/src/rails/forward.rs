//! Rails around rails: what a wrapper does not change, it hands on. All of it is here, so that none forgets a
//! method that has a default.

/// Implements the named methods of `rerail_linux::rail::Rail` by handing them on to `self.inner`.
macro_rules! forward {
    ($($method:ident),* $(,)?) => { $( $crate::rails::forward::forward!(@$method); )* };
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

pub(crate) use forward;
