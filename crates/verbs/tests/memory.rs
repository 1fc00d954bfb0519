//! Who may do what with which bytes of which region or window, and until when.

mod support;

use std::sync::Arc;

use support::{ALL, BYTES, Parts, parts, sge};
use weft_verbs::mr::{Accessor, Backing, Bind, Budget, DeviceMemory, Invalidate, RegionSpec};
use weft_verbs::mr::{LEAST_KEY, WindowKind};
use weft_verbs::sge::{parts as parts_of, total_len};
use weft_verbs::usage::Counted;
use weft_verbs::{Access, Misuse, RegionFault as Fault};
use weft_wire::crc::Crc32c;
use weft_wire::llp::{Gather, MemoryPiece, Piece, RegisteredMemory};

const KEY: u32 = 0x0100_0042;
const WINDOW: u32 = 0x0200_0000;
const PEER: Accessor = Accessor { pd: 1, qp: Some(7) };
const END: u64 = 0x1000 + BYTES;

#[test]
fn every_access_is_checked_in_the_order_of_the_rfc() {
    let parts = parts();
    parts.region(KEY, Access::LOCAL_WRITE | Access::REMOTE_WRITE);
    let check =
        |key, pd: u32, to, len, right| parts.regions.check(key, pd, to, len, right).map(drop);
    let write = Access::REMOTE_WRITE;
    let none = Access::empty();
    assert_eq!(check(KEY, 1, 0x1000, BYTES, write), Ok(()));
    assert_eq!(check(KEY, 1, END - 1, 1, write), Ok(()));
    assert_eq!(check(KEY, 1, END, 0, none), Ok(()));
    assert_eq!(check(KEY ^ 1, 1, 0x1000, 1, write), Err(Fault::InvalidStag), "the low bits count");
    assert_eq!(check(KEY ^ 0x100, 1, 0x1000, 1, write), Err(Fault::InvalidStag));
    assert_eq!(check(KEY, 2, u64::MAX, 9, Access::REMOTE_READ), Err(Fault::WrongPd));
    assert_eq!(check(KEY, 1, u64::MAX, 9, Access::REMOTE_READ), Err(Fault::Wrap));
    assert_eq!(check(KEY, 1, 0xfff, 2, Access::REMOTE_READ), Err(Fault::Bounds));
    assert_eq!(check(KEY, 1, END - 1, 2, Access::REMOTE_READ), Err(Fault::Bounds));
    assert_eq!(check(KEY, 1, 0x1000, 1, Access::REMOTE_READ), Err(Fault::Access));
}

#[test]
fn bytes_go_where_the_key_leads_and_come_back() {
    let parts = parts();
    parts.region(KEY, ALL);
    let to = 0x1000 + 5;
    parts.regions.write(KEY, PEER, to, b"some bytes", Access::REMOTE_WRITE).unwrap();
    assert_eq!(parts.bytes(4, 12), b"\0some bytes\0");
    let mut out = [0; 10];
    parts.regions.read(KEY, 1, to, &mut out).unwrap();
    assert_eq!(&out, b"some bytes");
    assert_eq!(parts.regions.read(KEY, 1, END, &mut out), Err(Fault::Bounds));
    assert_eq!(parts.regions.read(1 << 20, 1, to, &mut out), Err(Fault::InvalidStag));
    let past = parts.regions.write(KEY, PEER, END, b"x", Access::REMOTE_WRITE);
    assert_eq!(past, Err(Fault::Bounds));
    // Across a list of entries, from somewhere within it.
    let list = [sge(KEY, 0x1000 + 100, 4), sge(KEY, 0x1000 + 120, 0), sge(KEY, 0x1000 + 130, 6)];
    parts.regions.scatter(1, &list, 2, b"abcdef").unwrap();
    assert_eq!(parts.bytes(100, 6), b"\0\0ab\0\0");
    assert_eq!(parts.bytes(130, 6), b"cdef\0\0");
    assert_eq!(parts.regions.scatter(2, &list, 2, b"abc"), Err(Fault::WrongPd));
}

#[test]
fn the_parts_of_a_list_cover_what_is_asked_for() {
    let list = [sge(1, 10, 4), sge(2, 20, 0), sge(3, 30, 6)];
    let of = |offset, len| parts_of(&list, offset, len).collect::<Vec<_>>();
    assert_eq!(total_len(&list), 10);
    assert_eq!(of(0, 10), [sge(1, 10, 4), sge(3, 30, 6)]);
    assert_eq!(of(3, 2), [sge(1, 13, 1), sge(3, 30, 1)]);
    assert_eq!(of(4, 3), [sge(3, 30, 3)]);
    assert_eq!(of(0, 4), [sge(1, 10, 4)]);
    assert_eq!(of(9, 9), [sge(3, 35, 1)]);
    assert_eq!(of(2, 0), []);
}

#[test]
fn what_cannot_be_registered_is_refused() {
    let parts = parts();
    let with = |change: fn(&mut RegionSpec)| {
        let mut spec = parts.spec(Access::LOCAL_WRITE);
        change(&mut spec);
        parts.regions.register(&spec, || KEY).map_err(|misuse| misuse.errno())
    };
    assert_eq!(with(|spec| spec.access = Access::REMOTE_WRITE), Err(22));
    assert_eq!(with(|spec| spec.access = Access::REMOTE_ATOMIC), Err(22));
    assert_eq!(with(|spec| spec.addr = u64::MAX), Err(22));
    assert_eq!(with(|spec| spec.iova = u64::MAX - 2), Err(22));
    assert_eq!(with(|spec| spec.access = Access::REMOTE_READ), Ok(KEY));
    // A key that is taken, or small, is not given again.
    let mut drawn = [5, LEAST_KEY - 1, KEY, KEY ^ 1, LEAST_KEY].into_iter();
    let spec = parts.spec(Access::empty());
    assert_eq!(parts.regions.register(&spec, || drawn.next().unwrap()), Ok(LEAST_KEY));
}

#[test]
fn a_region_that_is_gone_serves_nobody() {
    let parts = parts();
    parts.region(KEY, ALL);
    assert!(parts.pd.users().any());
    let before = parts.regions.reader().generation();
    assert_eq!(parts.regions.deregister(KEY ^ 1), Err(Misuse::NotFound));
    assert_eq!(parts.regions.reader().generation(), before);
    parts.regions.deregister(KEY).unwrap();
    assert!(parts.regions.reader().generation() > before);
    assert!(!parts.pd.users().any());
    assert_eq!(parts.regions.check(KEY, 1, 0x1000, 1, Access::empty()), Err(Fault::InvalidStag));
    assert_eq!(parts.regions.deregister(KEY), Err(Misuse::NotFound));
}

#[test]
fn a_region_changes_under_its_key() {
    let parts = parts();
    parts.region(KEY, Access::empty());
    let check = |pd: u32, to, right| parts.regions.check(KEY, pd, to, 8, right).map(drop);
    let before = parts.regions.reader().generation();
    let mut spec = parts.regions.spec(KEY).unwrap();
    spec.access = Access::REMOTE_READ;
    parts.regions.reregister(KEY, &spec).unwrap();
    assert!(parts.regions.reader().generation() > before);
    assert_eq!(check(1, 0x1000, Access::REMOTE_READ), Ok(()));
    spec.pd = Arc::clone(&parts.other);
    parts.regions.reregister(KEY, &spec).unwrap();
    assert_eq!(check(1, 0x1000, Access::REMOTE_READ), Err(Fault::WrongPd));
    assert_eq!(check(2, 0x1000, Access::REMOTE_READ), Ok(()));
    (spec.addr, spec.len, spec.iova) = (parts.memory.as_ptr() as u64, 16, 0x9000);
    parts.regions.reregister(KEY, &spec).unwrap();
    assert_eq!(check(2, 0x9008, Access::REMOTE_READ), Ok(()));
    assert_eq!(check(2, 0x9009, Access::REMOTE_READ), Err(Fault::Bounds));
    let without_local = RegionSpec { access: Access::REMOTE_WRITE, ..spec.clone() };
    assert!(parts.regions.reregister(KEY, &without_local).is_err());
    assert_eq!(check(2, 0x9008, Access::REMOTE_READ), Ok(()));
    assert_eq!(parts.regions.reregister(KEY ^ 1, &spec), Err(Misuse::NotFound));
    assert!(matches!(parts.regions.spec(KEY ^ 1), Err(Misuse::NotFound)));
}

#[test]
fn only_a_key_with_rights_can_be_invalidated_by_the_peer() {
    let parts = parts();
    let (mine, shared) = (KEY, KEY + 0x100);
    parts.region(mine, Access::LOCAL_WRITE);
    parts.region(shared, Access::REMOTE_READ);
    let by = |key, who, how| parts.regions.invalidate(key, who, how);
    let stranger = Accessor { pd: 2, qp: Some(7) };
    assert_eq!(by(1 << 20, PEER, Invalidate::Remote), Err(Fault::InvalidStag));
    assert_eq!(by(shared, stranger, Invalidate::Remote), Err(Fault::WrongPd));
    assert_eq!(by(mine, PEER, Invalidate::Remote), Err(Fault::Access));
    assert_eq!(by(mine, PEER, Invalidate::Local), Ok(()));
    let before = parts.regions.reader().generation();
    assert_eq!(by(shared, PEER, Invalidate::Remote), Ok(()));
    assert!(parts.regions.reader().generation() > before);
    for key in [mine, shared] {
        let used = parts.regions.check(key, 1, 0x1000, 1, Access::empty());
        assert_eq!(used, Err(Fault::InvalidStag));
    }
}

fn bind(key: u32, len: u64, access: Access) -> Bind {
    Bind { window: WINDOW, key, region: KEY, addr: 0x1010, len, access }
}

/// A region, and a window of `kind`.
fn windowed(kind: WindowKind) -> Parts {
    let parts = parts();
    parts.region(KEY, ALL);
    assert_eq!(parts.regions.allocate_window(&parts.pd, kind, || WINDOW), WINDOW);
    parts
}

#[test]
fn a_window_grants_a_part_of_a_region_to_peers() {
    let parts = windowed(WindowKind::Type1);
    let check = |key, who: Accessor, to, len, right| {
        parts.regions.check(key, who, to, len, right).map(drop)
    };
    let read = Access::REMOTE_READ;
    assert_eq!(check(WINDOW, PEER, 0x1010, 1, read), Err(Fault::InvalidStag));
    let before = parts.regions.reader().generation();
    parts.regions.bind(PEER, &bind(WINDOW + 1, 32, read)).unwrap();
    assert!(parts.regions.reader().generation() > before);
    let key = WINDOW + 1;
    assert_eq!(check(key, PEER, 0x1010, 32, read), Ok(()));
    assert_eq!(check(key, Accessor { pd: 1, qp: Some(8) }, 0x1010, 32, read), Ok(()));
    assert_eq!(check(key, PEER, 0x100f, 2, read), Err(Fault::Bounds));
    assert_eq!(check(key, PEER, 0x1010, 33, read), Err(Fault::Bounds));
    assert_eq!(check(key, PEER, 0x1010, 1, Access::REMOTE_WRITE), Err(Fault::Access));
    // Local access names the region, and the old key is of no use.
    assert_eq!(check(key, PEER, 0x1010, 1, Access::LOCAL_WRITE), Err(Fault::InvalidStag));
    assert_eq!(check(key, PEER, 0x1010, 1, Access::empty()), Err(Fault::InvalidStag));
    assert_eq!(check(WINDOW, PEER, 0x1010, 1, read), Err(Fault::InvalidStag));
    let mut out = Gather::new();
    let reader = parts.regions.reader();
    reader.gather_region(key, PEER, 0x1018, 4, read, &mut out).unwrap();
    drop(reader);
    let addr = parts.memory.as_ptr() as u64 + 0x18;
    assert!(matches!(out.pieces()[..], [Piece::Memory(piece)] if piece.addr == addr));
    // The region is in use until the window is bound to nothing.
    assert_eq!(parts.regions.deregister(KEY), Err(Misuse::Busy));
    let spec = parts.regions.spec(KEY).unwrap();
    assert_eq!(parts.regions.reregister(KEY, &spec), Err(Misuse::Busy));
    assert_eq!(parts.regions.invalidate(KEY, PEER, Invalidate::Local), Err(Fault::Access));
    assert_eq!(parts.regions.invalidate(key, PEER, Invalidate::Remote), Err(Fault::Access));
    assert_eq!(parts.regions.deregister(key), Err(Misuse::NotFound));
    parts.regions.bind(PEER, &Bind { window: key, ..bind(WINDOW + 2, 0, read) }).unwrap();
    assert_eq!(check(WINDOW + 2, PEER, 0x1010, 1, read), Err(Fault::InvalidStag));
    parts.regions.deregister(KEY).unwrap();
}

#[test]
fn a_binding_is_refused_for_what_it_may_not_grant() {
    let tried = |kind, change: &dyn Fn(&mut Bind), access, who| {
        let parts = parts();
        parts.region(KEY, access);
        parts.regions.allocate_window(&parts.pd, kind, || WINDOW);
        let mut bind = bind(WINDOW + 1, 32, Access::REMOTE_READ);
        change(&mut bind);
        parts.regions.bind(who, &bind)
    };
    let (one, two) = (WindowKind::Type1, WindowKind::Type2);
    let plain = |_: &mut Bind| ();
    for kind in [one, two] {
        assert_eq!(tried(kind, &plain, ALL, PEER), Ok(()));
        assert_eq!(tried(kind, &plain, Access::REMOTE_READ, PEER), Err(Fault::Access));
        let other = Accessor { pd: 2, qp: Some(7) };
        assert_eq!(tried(kind, &plain, ALL, other), Err(Fault::WrongPd));
        let far = |bind: &mut Bind| bind.len = BYTES;
        assert_eq!(tried(kind, &far, ALL, PEER), Err(Fault::Bounds));
        let absent = |bind: &mut Bind| bind.region ^= 1;
        assert_eq!(tried(kind, &absent, ALL, PEER), Err(Fault::InvalidStag));
        let itself = |bind: &mut Bind| bind.region = WINDOW;
        assert_eq!(tried(kind, &itself, ALL, PEER), Err(Fault::InvalidStag));
        let alien = |bind: &mut Bind| bind.key += 0x100;
        assert_eq!(tried(kind, &alien, ALL, PEER), Err(Fault::InvalidStag));
        let missing = |bind: &mut Bind| bind.window += 0x100;
        assert_eq!(tried(kind, &missing, ALL, PEER), Err(Fault::InvalidStag));
        let region = |bind: &mut Bind| (bind.window, bind.key) = (KEY, KEY);
        assert_eq!(tried(kind, &region, ALL, PEER), Err(Fault::InvalidStag));
        let local = |bind: &mut Bind| bind.access = Access::LOCAL_WRITE;
        assert_eq!(tried(kind, &local, ALL, PEER), Err(Fault::Access));
        // What a peer may change, this side must be able to change too.
        let write = |bind: &mut Bind| bind.access = Access::REMOTE_WRITE;
        let readable = Access::MW_BIND | Access::REMOTE_READ;
        assert_eq!(tried(kind, &write, readable, PEER), Err(Fault::Access));
        assert_eq!(tried(kind, &plain, readable, PEER), Ok(()));
    }
    let nothing = |bind: &mut Bind| bind.len = 0;
    assert_eq!(tried(one, &nothing, ALL, PEER), Ok(()));
    assert_eq!(tried(two, &nothing, ALL, PEER), Err(Fault::InvalidStag));
    // A domain may have no part in another's window, even with a region of its own.
    let parts = parts();
    let spec = RegionSpec { pd: Arc::clone(&parts.other), ..parts.spec(ALL) };
    parts.regions.register(&spec, || KEY).unwrap();
    parts.regions.allocate_window(&parts.pd, one, || WINDOW);
    let bound = parts
        .regions
        .bind(Accessor { pd: 2, qp: None }, &bind(WINDOW + 1, 8, ALL & Access::REMOTE));
    assert_eq!(bound, Err(Fault::WrongPd));
}

#[test]
fn a_window_of_type_2_is_for_one_queue_pair() {
    let parts = windowed(WindowKind::Type2);
    let (read, key) = (Access::REMOTE_READ, WINDOW + 1);
    let other = Accessor { pd: 1, qp: Some(8) };
    parts.regions.bind(PEER, &bind(key, 32, read)).unwrap();
    assert_eq!(parts.regions.check(key, PEER, 0x1010, 1, read).map(drop), Ok(()));
    assert_eq!(parts.regions.check(key, other, 0x1010, 1, read), Err(Fault::WrongPd));
    // Bound, it cannot be bound again, and others cannot invalidate it.
    let again = Bind { window: key, ..bind(key + 1, 8, read) };
    assert_eq!(parts.regions.bind(PEER, &again), Err(Fault::InvalidStag));
    assert_eq!(parts.regions.invalidate(key, other, Invalidate::Local), Err(Fault::Access));
    parts.regions.forget_qp(8);
    assert_eq!(parts.regions.check(key, PEER, 0x1010, 1, read).map(drop), Ok(()));
    assert_eq!(parts.regions.invalidate(key, PEER, Invalidate::Remote), Ok(()));
    assert_eq!(parts.regions.check(key, PEER, 0x1010, 1, read), Err(Fault::InvalidStag));
    parts.regions.bind(PEER, &again).unwrap();
    // It ends with its queue pair, and leaves the region free.
    let before = parts.regions.reader().generation();
    parts.regions.forget_qp(7);
    assert!(parts.regions.reader().generation() > before);
    assert_eq!(parts.regions.check(key + 1, PEER, 0x1010, 1, read), Err(Fault::InvalidStag));
    parts.regions.deregister(KEY).unwrap();
}

#[test]
fn a_window_is_freed_by_any_key_that_it_had() {
    let parts = windowed(WindowKind::Type2);
    parts.regions.bind(PEER, &bind(WINDOW + 5, 32, Access::REMOTE_READ)).unwrap();
    assert_eq!(parts.regions.free_window(KEY), Err(Misuse::NotFound));
    assert_eq!(parts.regions.free_window(WINDOW ^ 0x100), Err(Misuse::NotFound));
    let before = parts.regions.reader().generation();
    parts.regions.free_window(WINDOW).unwrap();
    assert!(parts.regions.reader().generation() > before);
    parts.regions.deregister(KEY).unwrap();
    assert_eq!(parts.regions.free_window(WINDOW), Err(Misuse::NotFound));
    // Without windows a queue pair that goes changes nothing.
    let before = parts.regions.reader().generation();
    parts.regions.forget_qp(7);
    assert_eq!(parts.regions.reader().generation(), before);
}

#[test]
fn zero_based_windows_count_from_their_start() {
    let parts = windowed(WindowKind::Type1);
    let access = Access::REMOTE_WRITE | Access::ZERO_BASED;
    parts.regions.bind(PEER, &bind(WINDOW + 1, 8, access)).unwrap();
    let write = |to, bytes: &[u8]| {
        parts.regions.write(WINDOW + 1, PEER, to, bytes, Access::REMOTE_WRITE).map(drop)
    };
    assert_eq!(write(2, b"ab"), Ok(()));
    assert_eq!(write(7, b"ab"), Err(Fault::Bounds));
    assert_eq!(parts.bytes(0x10, 6), b"\0\0ab\0\0");
}

#[test]
fn keys_of_windows_change_in_their_lower_eight_bits() {
    assert_eq!(Bind::next_key(0x1234_5600), 0x1234_5601);
    assert_eq!(Bind::next_key(0x1234_56ff), 0x1234_5600);
    assert_eq!(WindowKind::from_raw(1), Some(WindowKind::Type1));
    assert_eq!(WindowKind::from_raw(2), Some(WindowKind::Type2));
    assert_eq!((WindowKind::from_raw(0), WindowKind::from_raw(3)), (None, None));
}

#[test]
fn what_is_gathered_holds_until_a_region_changes() {
    let parts = parts();
    parts.region(KEY, ALL);
    parts.regions.write(KEY, 1, 0x1000, b"0123456789", Access::LOCAL_WRITE).unwrap();
    let reader = parts.regions.reader();
    let list = [sge(KEY, 0x1000, 4), sge(KEY, 0x1006, 4)];
    let mut out = Gather::new();
    reader.gather(1, &list, 2, 4, &mut out).unwrap();
    let mut bytes = Vec::new();
    let mut crc = Crc32c::new();
    for piece in out.pieces() {
        let Piece::Memory(piece) = *piece else { panic!("not in memory") };
        assert!(reader.still_holds(piece));
        crc = reader.crc32c(crc, piece);
        reader.copy_to(piece, &mut bytes);
    }
    assert_eq!(bytes, b"2367");
    assert_eq!(crc.to_wire(), Crc32c::of(b"2367"));
    assert!(!reader.found_gone());
    let addr = parts.memory.as_ptr() as u64;
    let holds = |addr, len| reader.still_holds(MemoryPiece { addr, len });
    assert!(holds(addr, BYTES as u32) && holds(addr + BYTES - 1, 1));
    assert!(!holds(addr - 1, 1) && !holds(addr, BYTES as u32 + 1));
    assert!(!reader.is_gone(1, &list) && reader.is_gone(2, &list));
    assert!(!reader.is_region_gone(KEY, PEER, 0x1000, 8));
    assert!(reader.is_region_gone(KEY, PEER, END, 8));
    assert_eq!(reader.check(1, &list, Access::LOCAL_WRITE), Ok(()));
    assert_eq!(reader.check(2, &list, Access::empty()), Err(Fault::WrongPd));
    assert_eq!(reader.check(1, &[sge(9, 0, 1)], Access::empty()), Err(Fault::InvalidStag));
    assert_eq!(reader.check(1, &[sge(9, 0, 0)], Access::empty()), Ok(()), "nothing of nothing");
    let piece = MemoryPiece { addr, len: 4 };
    drop(reader);
    parts.regions.invalidate(KEY, 1, Invalidate::Local).unwrap();
    assert!(!parts.regions.reader().still_holds(piece));
}

/// The first page of a process is never mapped.
#[test]
fn memory_that_is_not_mapped_is_noticed() {
    weft_guard::install();
    let parts = parts();
    let spec = RegionSpec { addr: 64, ..parts.spec(ALL) };
    parts.regions.register(&spec, || KEY).unwrap();
    let mut out = [1; 8];
    assert_eq!(parts.regions.read(KEY, 1, 0x1000, &mut out), Err(Fault::Bounds));
    let write = parts.regions.write(KEY, 1, 0x1000, &[1; 8], Access::LOCAL_WRITE);
    assert_eq!(write, Err(Fault::Bounds));
    let reader = parts.regions.reader();
    assert_eq!(reader.atomic(KEY, PEER, 0x1000, Some), Err(Fault::Bounds));
    assert!(reader.is_gone(1, &[sge(KEY, 0x1000, 8)]));
    assert!(reader.is_region_gone(KEY, PEER, 0x1000, 8));
    let piece = MemoryPiece { addr: 64, len: 4 };
    let mut bytes = Vec::new();
    reader.copy_to(piece, &mut bytes);
    assert_eq!(bytes, [0; 4]);
    assert!(reader.found_gone() && !reader.found_gone(), "it is told once");
    let crc = reader.crc32c(Crc32c::new().update(b"x"), piece);
    assert_eq!(crc.to_wire(), Crc32c::of(b"x"));
    assert!(reader.found_gone());
}

#[test]
fn atomics_are_for_whole_words_of_peers_with_the_right() {
    let mut parts = parts();
    parts.memory[1] = 5;
    parts.region(KEY, ALL);
    let read_only = KEY + 0x100;
    parts.region(read_only, Access::LOCAL_WRITE);
    let reader = parts.regions.reader();
    let add = |old: u64| Some(old + 2);
    assert_eq!(reader.atomic(KEY, PEER, 0x1008, add), Ok(5));
    assert_eq!(reader.atomic(KEY, PEER, 0x1008, |_| None), Ok(7));
    assert_eq!(reader.atomic(KEY, PEER, 0x100c, add), Err(Fault::Bounds));
    assert_eq!(reader.atomic(KEY, PEER, END - 4, add), Err(Fault::Bounds));
    assert_eq!(reader.atomic(read_only, PEER, 0x1008, add), Err(Fault::Access));
    assert_eq!(reader.atomic(1 << 20, PEER, 0x1008, add), Err(Fault::InvalidStag));
    drop(reader);
    assert_eq!(parts.bytes(8, 8), 7_u64.to_ne_bytes());
}

#[test]
fn a_null_region_reads_as_zeroes_and_takes_everything() {
    let parts = parts();
    let spec =
        RegionSpec { backing: Backing::Null, addr: 0, len: 1 << 20, iova: 0, ..parts.spec(ALL) };
    parts.regions.register(&spec, || KEY).unwrap();
    parts.regions.write(KEY, 1, 5, &[1; 8], Access::LOCAL_WRITE).unwrap();
    let mut out = [1; 8];
    parts.regions.read(KEY, 1, 5, &mut out).unwrap();
    assert_eq!(out, [0; 8]);
    let reader = parts.regions.reader();
    let (mut pieces, len) = (Gather::new(), (1 << 16) + 9);
    reader.gather_region(KEY, 1, 0, len, Access::empty(), &mut pieces).unwrap();
    assert_eq!(pieces.len(), len as usize);
    let mut bytes = Vec::new();
    for piece in pieces.pieces() {
        let Piece::Memory(piece) = *piece else { panic!("not in memory") };
        assert!(reader.still_holds(piece));
        reader.copy_to(piece, &mut bytes);
    }
    assert_eq!(bytes, vec![0; len as usize]);
}

#[test]
fn memory_on_demand_is_looked_for_at_each_access() {
    fn below_2000(addr: u64, len: u64, write: bool) -> bool {
        addr + len <= 0x2000 && !write
    }
    let parts = parts();
    let spec = RegionSpec {
        backing: Backing::OnDemand(below_2000),
        addr: 0,
        len: 1 << 30,
        iova: 0,
        ..parts.spec(ALL)
    };
    parts.regions.register(&spec, || KEY).unwrap();
    let check = |to, right| parts.regions.check(KEY, 1, to, 8, right).map(drop);
    assert_eq!(check(0x1ff8, Access::REMOTE_READ), Ok(()));
    assert_eq!(check(0x1ff9, Access::REMOTE_READ), Err(Fault::Bounds));
    for right in [Access::LOCAL_WRITE, Access::REMOTE_WRITE, Access::REMOTE_ATOMIC] {
        assert_eq!(check(0x1ff8, right), Err(Fault::Bounds));
    }
}

#[test]
fn device_memory_is_within_its_budget_and_its_words() {
    let budget = Budget::new(64);
    let memory = DeviceMemory::allocate(&budget, 20).unwrap();
    assert_eq!(memory.octets(), 20);
    assert_eq!(DeviceMemory::allocate(&budget, 45).map(drop), Err(Misuse::Full));
    let rest = DeviceMemory::allocate(&budget, 44).unwrap();
    assert_eq!(DeviceMemory::allocate(&budget, 4).map(drop), Err(Misuse::Full));
    drop(rest);
    assert!(DeviceMemory::allocate(&budget, 44).is_ok());
    for octets in [0, 65] {
        assert!(matches!(DeviceMemory::allocate(&budget, octets), Err(Misuse::Invalid(_))));
    }
    memory.write(4, b"abcdefgh").unwrap();
    let mut out = vec![7];
    memory.read_append(8, 4, &mut out).unwrap();
    assert_eq!(out, b"\x07efgh");
    for (offset, len) in [(2, 4), (4, 2), (16, 8), (20, 4)] {
        assert!(memory.write(offset, &vec![0; len as usize]).is_err());
        assert!(memory.read_append(offset, len, &mut out).is_err());
    }
    assert_eq!(memory.range(7, 13), memory.range(0, 0).map(|start| start + 7));
    assert!(memory.range(7, 14).is_err() && memory.range(u64::MAX, 2).is_err());
    assert!(!memory.users().any());
    let parts = parts();
    let addr = memory.range(0, 20).unwrap();
    let backing = Backing::Device(Arc::clone(&memory));
    let spec = RegionSpec { addr, len: 20, backing, ..parts.spec(ALL) };
    parts.regions.register(&spec, || KEY).unwrap();
    assert!(memory.users().any());
    let mut out = [0; 4];
    parts.regions.read(KEY, 1, 0x1004, &mut out).unwrap();
    assert_eq!(&out, b"abcd");
    parts.regions.deregister(KEY).unwrap();
    assert!(!memory.users().any());
}
