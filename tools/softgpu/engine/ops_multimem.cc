// multimem.ld_reduce, multimem.st and multimem.red: instructions on multicast addresses, each of which stands for an
// address in the memory of every device of a team.
//
// As the PTX ISA 8.1 and later define them for sm_90, and as its assembler accepts them:
//   ld_reduce  loads from every device and reduces, in an order that is not defined:
//              .add of u32, s32, u64, f32, f64, and f16, bf16 and pairs of these;
//              .min and .max of u32, s32, u64, s64, f16, bf16 and pairs; .and, .or, .xor of b32 and b64
//   st         stores to every device, any of these types
//   red        reduces the memory of every device with a value, each by itself and atomically, by the same operations
//   .acc::f32  sums of f16 and bf16 are computed in f32 and rounded once; without it, every addition rounds
//   .v2 .v4 .v8  of floating-point types other than f64, which make an access of 4, 8 or 16 bytes
// The address is aligned to the access. Other accesses to a multicast address, and these to another one, are undefined:
// here, errors.
#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "tools/softgpu/engine/float_apply.h"
#include "tools/softgpu/engine/memory_access.h"

namespace softgpu::engine {
namespace {

enum class Fold : uint8_t { kAdd, kMin, kMax, kAnd, kOr, kXor };
constexpr std::string_view kFoldNames[] = {"add", "min", "max", "and", "or", "xor"};

constexpr uint32_t kMostBytes = 16;
using Access = std::array<std::byte, kMostBytes>;

// Finds what is behind the addresses of an instruction's lanes, which are mostly in one stretch.
class Finder {
 public:
  Finder(Warp& w, const Instr& in) : w_(w), in_(in) {}

  // Returns null if the launch has failed. `at` becomes the offset in the window.
  const MulticastWindow* Find(uint32_t lane, uint64_t address, uint32_t bytes, uint64_t* at) {
    if (address % bytes != 0) return Fail(lane, address, bytes, "is not aligned");
    if (address < window_.begin || address >= window_.end) {
      window_ = {};
      if (!w_.execution->ranges().FindMulticast(address, &window_))
        return Fail(lane, address, bytes, "is no multicast address behind which every device has memory");
    }
    if (bytes > window_.end - address) return Fail(lane, address, bytes, "reaches beyond the multicast addresses");
    *at = address - window_.begin;
    return &window_;
  }

 private:
  const MulticastWindow* Fail(uint32_t lane, uint64_t address, uint32_t bytes, const char* what) {
    FailAddress(w_, in_, lane, address, bytes, what);
    return nullptr;
  }

  Warp& w_;
  const Instr& in_;
  MulticastWindow window_;
};

// One number of an access. `Sum` is the type in which numbers are added.
template <class T>
struct Number {
  using Raw = T;
  using Sum = T;
  static Sum ToSum(Raw raw) { return raw; }
  static Raw FromSum(Sum sum) { return sum; }
};
template <bool half>
struct Short {
  using Raw = uint16_t;
  using Sum = float;
  static Sum ToSum(Raw raw) { return half ? HalfToFloat(raw) : BfloatToFloat(raw); }
  static Raw FromSum(Sum sum) { return half ? FloatToHalf(sum) : FloatToBfloat(sum); }
};

template <class T>
T Combine(Fold fold, T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (fold == Fold::kAdd) return Canonical(a + b);
    return MinMax(a, b, fold == Fold::kMax, 0);
  } else {
    switch (fold) {
      case Fold::kAdd:
        return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
      case Fold::kMin:
        return std::min(a, b);
      case Fold::kMax:
        return std::max(a, b);
      case Fold::kAnd:
        return a & b;
      case Fold::kOr:
        return a | b;
      case Fold::kXor:
        return a ^ b;
    }
    return a;
  }
}

// Folds the numbers of all copies; the result replaces the first.
template <class Kind, bool rounds_each>
void FoldAll(Fold fold, uint32_t bytes, std::span<Access> copies) {
  using Raw = typename Kind::Raw;
  for (uint32_t at = 0; at < bytes; at += sizeof(Raw)) {
    const auto load = [&](const Access& copy) {
      Raw raw;
      std::memcpy(&raw, copy.data() + at, sizeof raw);
      return Kind::ToSum(raw);
    };
    auto sum = load(copies[0]);
    for (const Access& copy : copies.subspan(1)) {
      sum = Combine(fold, sum, load(copy));
      if (rounds_each) sum = Kind::ToSum(Kind::FromSum(sum));
    }
    const Raw raw = Kind::FromSum(sum);
    std::memcpy(copies[0].data() + at, &raw, sizeof raw);
  }
}
using FoldFunction = void (*)(Fold, uint32_t, std::span<Access>);

// Returns null if ld_reduce has no such form.
FoldFunction FoldOf(Fold fold, Type type, bool rounds_once) {
  const bool compares = fold == Fold::kMin || fold == Fold::kMax, bits = fold > Fold::kMax;
  switch (type) {
    case Type::kB32:
      return bits ? FoldAll<Number<uint32_t>, false> : nullptr;
    case Type::kB64:
      return bits ? FoldAll<Number<uint64_t>, false> : nullptr;
    case Type::kU32:
      return bits ? nullptr : FoldAll<Number<uint32_t>, false>;
    case Type::kS32:
      return bits ? nullptr : FoldAll<Number<int32_t>, false>;
    case Type::kU64:
      return bits ? nullptr : FoldAll<Number<uint64_t>, false>;
    case Type::kS64:
      return compares ? FoldAll<Number<int64_t>, false> : nullptr;
    case Type::kF32:
      return fold == Fold::kAdd ? FoldAll<Number<float>, false> : nullptr;
    case Type::kF64:
      return fold == Fold::kAdd ? FoldAll<Number<double>, false> : nullptr;
    case Type::kF16:
    case Type::kF16x2:
      return bits ? nullptr : rounds_once ? FoldAll<Short<true>, false> : FoldAll<Short<true>, true>;
    case Type::kBf16:
    case Type::kBf16x2:
      return bits ? nullptr : rounds_once ? FoldAll<Short<false>, false> : FoldAll<Short<false>, true>;
    default:
      return nullptr;
  }
}

// kind: the Fold; kind2: the Type; flag: whether it rounds once; count and bytes: of elements.
void RunLoad(Warp& w, const Instr& in, uint32_t lanes) {
  const uint64_t* const a = w.In(in.a);
  const uint32_t bytes = uint32_t{in.bytes} * in.count;
  const FoldFunction fold = FoldOf(static_cast<Fold>(in.kind), static_cast<Type>(in.kind2), in.flag);
  Finder finder(w, in);
  std::vector<Access> copies;
  uint64_t addresses = 0, values = 0;
  ForLanes(lanes, [&](uint32_t i) {
    const uint64_t address = a[i] + static_cast<uint64_t>(in.offset);
    uint64_t at = 0;
    const MulticastWindow* const window = finder.Find(i, address, bytes, &at);
    if (window == nullptr) return;
    copies.resize(window->copies.size());
    for (size_t device = 0; device < copies.size(); ++device)
      LoadStrong(reinterpret_cast<const std::byte*>(window->copies[device] + at), bytes, in.order,
                 copies[device].data());
    fold(static_cast<Fold>(in.kind), bytes, copies);
    for (uint32_t k = 0; k < in.count; ++k) {
      uint64_t value = 0;
      std::memcpy(&value, copies[0].data() + k * in.bytes, in.bytes);
      w.Out(in.v[k])[i] = value;
      addresses = addresses * 31 + address;
      values = values * 31 + value;
    }
  });
  if (in.order != Order::kPlain) w.Poll(in, addresses, values);
}

void RunStore(Warp& w, const Instr& in, uint32_t lanes) {
  const uint64_t* const a = w.In(in.a);
  const uint32_t bytes = uint32_t{in.bytes} * in.count;
  Finder finder(w, in);
  ForLanes(lanes, [&](uint32_t i) {
    uint64_t at = 0;
    const MulticastWindow* const window = finder.Find(i, a[i] + static_cast<uint64_t>(in.offset), bytes, &at);
    if (window == nullptr) return;
    Access access;
    for (uint32_t k = 0; k < in.count; ++k) std::memcpy(access.data() + k * in.bytes, &w.In(in.v[k])[i], in.bytes);
    for (const uint64_t copy : window->copies)
      StoreStrong(reinterpret_cast<std::byte*>(copy + at), bytes, in.order, access.data());
  });
  w.progressed = true;
}

// Combines a number in memory with another one.
template <class Raw>
void ReduceOne(std::byte* at, FoldFunction function, Fold fold, const Access& value, Order order) {
  auto* const word = reinterpret_cast<Raw*>(at);
  const int success = order == Order::kPlain || order == Order::kRelaxed ? __ATOMIC_RELAXED : __ATOMIC_ACQ_REL;
  Raw old = __atomic_load_n(word, __ATOMIC_RELAXED), fresh;
  do {
    std::array<Access, 2> both{Access{}, value};
    std::memcpy(both[0].data(), &old, sizeof old);
    function(fold, sizeof(Raw), both);
    std::memcpy(&fresh, both[0].data(), sizeof fresh);
  } while (!__atomic_compare_exchange_n(word, &old, fresh, false, success, __ATOMIC_RELAXED));
}

void RunReduce(Warp& w, const Instr& in, uint32_t lanes) {
  const uint64_t* const a = w.In(in.a);
  const auto fold = static_cast<Fold>(in.kind);
  const FoldFunction function = FoldOf(fold, static_cast<Type>(in.kind2), false);
  const auto reduce = in.bytes == 8 ? ReduceOne<uint64_t> : in.bytes == 4 ? ReduceOne<uint32_t> : ReduceOne<uint16_t>;
  Finder finder(w, in);
  ForLanes(lanes, [&](uint32_t i) {
    uint64_t at = 0;
    const uint32_t bytes = uint32_t{in.bytes} * in.count;
    const MulticastWindow* const window = finder.Find(i, a[i] + static_cast<uint64_t>(in.offset), bytes, &at);
    if (window == nullptr) return;
    for (uint32_t k = 0; k < in.count; ++k) {
      Access value{};
      std::memcpy(value.data(), &w.In(in.v[k])[i], in.bytes);
      for (const uint64_t copy : window->copies)
        reduce(reinterpret_cast<std::byte*>(copy + at) + k * in.bytes, function, fold, value, in.order);
    }
  });
  w.progressed = true;
}

bool IsPair(Type type) { return type == Type::kF16x2 || type == Type::kBf16x2; }
bool IsShort(Type type) { return type == Type::kF16 || type == Type::kBf16 || IsPair(type); }

// Whether there are accesses of `count` elements of the type: a vector of floating-point numbers, or one of 4 or 8
// bytes.
bool HasForm(Type type, uint32_t count) {
  const uint32_t bytes = SizeOf(type) * count;
  if (count == 1) return bytes == 4 || bytes == 8;
  return (IsShort(type) || type == Type::kF32) && bytes <= kMostBytes;
}

bool TakeElements(Decoder& decoder, const OperandIr& operand, Type type, bool load, Instr* in) {
  const auto column = [&](const OperandIr& part) {
    return load ? decoder.TargetOf(part) : decoder.SourceOf(part, type);
  };
  if (operand.kind != OperandIr::kVector) {
    in->v[0] = column(operand);
    return in->count == 1;
  }
  if (operand.parts.size() != in->count) return decoder.Fail("the vector does not match");
  for (uint32_t k = 0; k < in->count; ++k) in->v[k] = column(operand.parts[k]);
  return true;
}

bool DecodeMultimem(Decoder& decoder) {
  const bool load = decoder.Take("ld_reduce"), reduces = load || decoder.Take("red");
  if (!reduces && !decoder.Take("st")) return false;
  MemoryModifiers modifiers = TakeMemoryModifiers(decoder, Order::kPlain);
  const int fold = reduces ? decoder.TakeOneOf(kFoldNames, -1) : 0;
  const bool rounds_once = load && decoder.Take("acc::f32");
  const Type type = decoder.TakeType();
  if (fold < 0 || !HasForm(type, modifiers.vector)) return false;
  if (rounds_once && (!IsShort(type) || static_cast<Fold>(fold) != Fold::kAdd)) return false;
  if (reduces && FoldOf(static_cast<Fold>(fold), type, rounds_once) == nullptr) return false;
  Instr& in = decoder.Emit(load ? RunLoad : reduces ? RunReduce : RunStore);
  in.kind = static_cast<uint8_t>(fold);
  in.kind2 = static_cast<uint8_t>(type);
  in.flag = rounds_once;
  in.count = static_cast<uint8_t>(modifiers.vector);
  in.bytes = static_cast<uint8_t>(SizeOf(type));
  in.order = modifiers.order;
  decoder.Address(decoder.operand(load ? 1 : 0), &modifiers.space, &in);
  in.space = modifiers.space;
  if (in.space != Space::kGlobal && in.space != Space::kGeneric) return false;
  return TakeElements(decoder, decoder.operand(load ? 0 : 1), type, load, &in);
}

constexpr OpcodeRow kRows[] = {{"multimem", DecodeMultimem}};

}  // namespace

std::span<const OpcodeRow> MultimemOpcodes() { return kRows; }

}  // namespace softgpu::engine
