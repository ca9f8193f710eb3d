#include <troupe/devices/cpu/level.hpp>

#include <cstdlib>
#include <string>

#include <fmt/format.h>

#include <troupe/devices/device/device.hpp>

namespace troupe {

namespace detail {

bool is_built(CpuLevel level) {
  switch (level) {
#if defined(__x86_64__)
    case CpuLevel::portable: return false;
    case CpuLevel::v2: return true;
#if defined(TROUPE_HAS_V3)
    case CpuLevel::v3: return true;
#endif
#if defined(TROUPE_HAS_V4)
    case CpuLevel::v4: return true;
#endif
    default: return false;
#else
    default: return level == CpuLevel::portable;
#endif
  }
}

std::string_view name_of(CpuLevel level) {
  switch (level) {
    case CpuLevel::portable: return "portable";
    case CpuLevel::v2: return "v2";
    case CpuLevel::v3: return "v3";
    case CpuLevel::v4: break;
  }
  return "v4";
}

}  // namespace detail

namespace {

#if defined(__x86_64__)
CpuLevel best_level() {
  __builtin_cpu_init();
  if (is_built(CpuLevel::v4) && __builtin_cpu_supports("x86-64-v4")) return CpuLevel::v4;
  if (is_built(CpuLevel::v3) && __builtin_cpu_supports("x86-64-v3")) return CpuLevel::v3;
  if (__builtin_cpu_supports("x86-64-v2")) return CpuLevel::v2;
  throw Error(Code::unimplemented, "Troupe needs a processor with x86-64-v2 (SSE 4.2)");
}
#else
CpuLevel best_level() { return CpuLevel::portable; }
#endif

CpuLevel chosen_level() {
  CpuLevel best = best_level();
  const char* wanted = std::getenv("TROUPE_CPU_LEVEL");
  if (!wanted || !*wanted) return best;
  for (CpuLevel level : {CpuLevel::portable, CpuLevel::v2, CpuLevel::v3, CpuLevel::v4}) {
    if (name_of(level) != wanted) continue;
    if (!is_built(level))
      throw Error(Code::invalid_argument,
                  fmt::format("TROUPE_CPU_LEVEL={}: this build has no kernels of that level; build "
                              "it with -DTROUPE_LEVELS='v2;v3;v4'",
                              wanted));
    if (level > best || (level == CpuLevel::portable) != (best == CpuLevel::portable))
      throw Error(Code::invalid_argument,
                  fmt::format("TROUPE_CPU_LEVEL={}: this processor runs {} at best", wanted,
                              name_of(best)));
    return level;
  }
  throw Error(Code::invalid_argument,
              fmt::format("TROUPE_CPU_LEVEL={} is none of v2, v3, v4", wanted));
}

}  // namespace

namespace detail {

CpuLevel cpu_level() {
  static const CpuLevel level = chosen_level();
  return level;
}

}  // namespace detail

namespace cpu {
namespace {

using Fill = void (*)(LevelKernels&);

LevelKernels filled(std::initializer_list<Fill> parts) {
  LevelKernels k{};
  for (Fill fill : parts) fill(k);
  return k;
}

#define TROUPE_LEVEL_TABLE(level)                                                                  \
  static const LevelKernels k =                                                                    \
      filled({fill_arithmetic_##level, fill_functions_##level, fill_casts_##level,                 \
              fill_rows_##level, fill_row_norm_##level, fill_pool_##level, fill_recurrent_##level, \
              fill_gemm_##level, fill_products_##level, fill_integer_gemm_##level,                 \
              fill_reductions_##level, fill_random_##level});                                      \
  return k

#if defined(__x86_64__)
const LevelKernels& table_v2() { TROUPE_LEVEL_TABLE(v2); }
#if defined(TROUPE_HAS_V3)
const LevelKernels& table_v3() { TROUPE_LEVEL_TABLE(v3); }
#endif
#if defined(TROUPE_HAS_V4)
const LevelKernels& table_v4() { TROUPE_LEVEL_TABLE(v4); }
#endif
#else
const LevelKernels& table_portable() { TROUPE_LEVEL_TABLE(portable); }
#endif
#undef TROUPE_LEVEL_TABLE

}  // namespace

const LevelKernels& level_kernels(CpuLevel level) {
#if defined(__x86_64__)
#if defined(TROUPE_HAS_V4)
  if (level == CpuLevel::v4) return table_v4();
#endif
#if defined(TROUPE_HAS_V3)
  if (level == CpuLevel::v3) return table_v3();
#endif
  (void)level;
  return table_v2();
#else
  (void)level;
  return table_portable();
#endif
}

const LevelKernels& level_kernels() {
  static const LevelKernels& k = level_kernels(cpu_level());
  return k;
}

}  // namespace cpu
}  // namespace troupe
