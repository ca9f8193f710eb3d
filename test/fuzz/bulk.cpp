// libFuzzer: the bytes of a peer on its bulk channel, in the clear, with a slab it lends from, and
// sealed (with a secret key). Instruments: cluster/transport/wire.cpp cluster/transport/lane.cpp
// cluster/transport/router.cpp cluster/transport/router_bulk.cpp
// cluster/transport/channel/bulk_record.cpp cluster/transport/pack_scan.cpp
// cluster/transport/channel/shared_slab.cpp cluster/transport/transport.cpp
#include <troupe/test/fuzz/input.hpp>
#include <troupe/test/support/cluster/hostile.hpp>

namespace {

using namespace troupe;

const OwnedDescriptor& slab() {
  static const OwnedDescriptor memory = make_slab(1 << 20);
  return memory;
}

/// Two tensors of a message, as bulk records with their bulk in them, or by loan.
std::string records(bool lent) {
  OutLane lane(Lane::data);
  lane.add({std::vector<std::byte>(8),
            {Tensor::zeros(DType::u8, Shape{17'000}), Tensor::zeros(DType::f32, Shape{5'000})}});
  BulkWriter writer({});
  if (lent) writer.use(LendingSlab::open(slab()));
  while (const Ref<OutFrame> frame = lane.next({}, 1 << 20)) writer.add(frame);
  std::string all;
  iovec pieces[8];
  while (writer.pieces(pieces) > 0) {
    all.append(static_cast<const char*>(pieces[0].iov_base), pieces[0].iov_len);
    writer.wrote(pieces[0].iov_len);
  }
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  for (const bool lent : {false, true}) troupe::test::seed(records(lent));
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const std::span<const std::byte> all(reinterpret_cast<const std::byte*>(data), size);
  troupe::test::Hostile victim(true);
  victim.tell_bulk(all);
  victim.tell_bulk(all);
  troupe::test::Hostile lent(true, {}, BorrowedSlab::open(slab()));
  lent.tell_bulk(all);
  for (const troupe::detail::SealCipher cipher : troupe::detail::seal_ciphers()) {
    troupe::test::Hostile sealed(true, troupe::detail::derive_seal_keys(cipher, {}, {}, false));
    sealed.tell_bulk(all);
  }
  return 0;
}
