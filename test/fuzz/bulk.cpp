// libFuzzer: what a peer says on its bulk channel, in the clear, with a slab it lends from, and sealed (where the key is known to nobody).
// Instruments: cluster/wire.cpp cluster/lane.cpp cluster/router.cpp cluster/router_bulk.cpp cluster/bulk_record.cpp cluster/pack_scan.cpp cluster/shared_slab.cpp cluster/transport.cpp
#include <troupe/test/cluster/hostile.hpp>

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const std::span<const std::byte> all(reinterpret_cast<const std::byte*>(data), size);
  troupe::test::Hostile victim(true);
  victim.tell_bulk(all);
  victim.tell_bulk(all);
  static const troupe::OwnedDescriptor slab = troupe::make_slab(1 << 20);
  troupe::test::Hostile lent(true, {}, troupe::BorrowedSlab::open(slab));
  lent.tell_bulk(all);
  troupe::test::Hostile sealed(true, troupe::derive_seal_keys({}, {}, false));
  sealed.tell_bulk(all);
  return 0;
}
