// libFuzzer: the first two bytes give the length of a wire frame's header in the rest; its bulk
// follows. The wire frame comes from the dialling end, and from the dialled one. Instruments:
// cluster/transport/wire.cpp cluster/transport/pack_scan.cpp cluster/transport/lane.cpp
// cluster/transport/router.cpp cluster/transport/router_bulk.cpp cluster/transport/transport.cpp
#include <troupe/test/support/cluster/hostile.hpp>

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const std::span<const std::byte> all(reinterpret_cast<const std::byte*>(data), size);
  troupe::test::decode_and_check(all);
  if (size < 2) return 0;
  const std::size_t header = std::min<std::size_t>(size - 2, data[0] + 256u * data[1]);
  troupe::test::Hostile victim;
  victim.tell(all.subspan(2, header), all.subspan(2 + header));
  victim.tell_dialled(all.subspan(2, header), all.subspan(2 + header));
  return 0;
}
