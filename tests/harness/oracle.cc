#include "tests/harness/oracle.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tests/harness/element.h"
#include "tests/harness/random.h"

namespace axccl::harness {
namespace {

constexpr int kShownErrors = 4;

// ---- integers ----

// Cuts to the type's width and extends it again, so that wrapping arithmetic can be done in 64 bits.
uint64_t Narrow(ncclDataType_t type, uint64_t value) {
  const int shift = 64 - 8 * static_cast<int>(TypeBytes(type));
  if (IsSignedInteger(type)) return static_cast<uint64_t>(static_cast<int64_t>(value << shift) >> shift);
  return value << shift >> shift;
}

uint64_t IntegerInput(const Case& c, int rank, size_t element) {
  const uint64_t bits = Scramble(c.seed, element, static_cast<uint64_t>(rank) + 1);
  // Even factors soon make every product zero, which would test nothing.
  if (c.fold == Fold::kProd && bits % 61 != 0) return Narrow(c.type, bits | 1);
  // Similarly, with few ranks random bits would all become 0 or 1, and all truth values equal.
  const uint64_t other = Scramble(bits, 1) & Scramble(bits, 2);
  if (c.fold == Fold::kAnd) return Narrow(c.type, bits | ~other);
  if (c.fold == Fold::kOr) return Narrow(c.type, bits & other);
  if (c.fold == Fold::kLogicalAnd && bits % 8 == 0) return 0;
  if (c.fold == Fold::kLogicalOr && bits % 4 != 0) return 0;
  return Narrow(c.type, bits);
}

uint64_t IntegerScalar(const Case& c, int rank) {
  return Narrow(c.type, Scramble(c.seed, 0x5ca1a7, static_cast<uint64_t>(rank)) | 1);
}

uint64_t CombineIntegers(const Case& c, uint64_t a, uint64_t b) {
  const bool less = IsSignedInteger(c.type) ? static_cast<int64_t>(a) < static_cast<int64_t>(b) : a < b;
  switch (c.fold) {
    case Fold::kProd:
      return Narrow(c.type, a * b);
    case Fold::kMax:
      return less ? b : a;
    case Fold::kMin:
      return less ? a : b;
    case Fold::kAnd:
      return a & b;
    case Fold::kOr:
      return a | b;
    case Fold::kXor:
      return a ^ b;
    case Fold::kLogicalAnd:
      return a != 0 && b != 0;
    case Fold::kLogicalOr:
      return a != 0 || b != 0;
    default:
      return Narrow(c.type, a + b);
  }
}

uint64_t FoldIntegers(const Case& c, int nranks, size_t element) {
  uint64_t total = 0;
  for (int rank = 0; rank < nranks; ++rank) {
    uint64_t value = IntegerInput(c, rank, element);
    if (c.fold == Fold::kPreMulSum) value = Narrow(c.type, value * IntegerScalar(c, rank));
    total = rank == 0 ? value : CombineIntegers(c, total, value);
  }
  if (c.fold == Fold::kAvg) {
    // NCCL: the sum wraps in the type, then is divided, toward zero.
    if (IsSignedInteger(c.type)) return Narrow(c.type, static_cast<uint64_t>(static_cast<int64_t>(total) / nranks));
    return total / static_cast<uint64_t>(nranks);
  }
  return total;
}

// ---- floats ----

// Whether `rank` is one of `active` ranks that contribute to the element, a different set for every element.
bool Contributes(uint64_t hash, int nranks, int rank, int active) {
  if (active >= nranks) return true;
  return static_cast<int>((static_cast<uint64_t>(rank) + hash % 4096) % static_cast<uint64_t>(nranks)) < active;
}

// Uniform in [0, bound), bound < 2^32, without a division.
uint64_t Below(uint64_t hash, uint64_t bound) { return (hash & 0xffffffffu) * bound >> 32; }

double PowerOfTwo(uint64_t hash, int low, int high) {
  constexpr double kPowers[] = {0x1p-6, 0x1p-5, 0x1p-4, 0x1p-3, 0x1p-2, 0x1p-1, 1, 2, 4, 8, 16, 32, 64};
  return kPowers[low + 6 + static_cast<int>(Below(hash, static_cast<uint64_t>(high - low + 1)))];
}

// Summands: integers whose partial sums stay below 2^precision in any order, all times one power of two.
double Summand(const Case& c, int nranks, int rank, uint64_t element_hash, uint64_t hash) {
  const int64_t exact = int64_t{1} << std::min(Precision(c.type), 31);
  const int64_t budget = c.fold == Fold::kPreMulSum ? exact / 2 : exact;  // scalars go up to 2
  const int64_t largest = std::max<int64_t>(1, budget / nranks);
  const int active = static_cast<int>(std::min<int64_t>(budget, nranks));
  if (!Contributes(element_hash, nranks, rank, active)) return 0;
  const double scale = PowerOfTwo(element_hash >> 20, -1, 1);
  const double magnitude = static_cast<double>(1 + Below(hash, static_cast<uint64_t>(largest)));
  // The sign of an average's summands is equal, so that its error is bounded by its own size.
  const bool negative = c.fold == Fold::kAvg ? (element_hash & 1) != 0 : (hash >> 60 & 1) != 0;
  return scale * (negative ? -magnitude : magnitude);
}

double Multiplicand(int nranks, int rank, uint64_t element_hash, uint64_t hash) {
  const double sign = (hash & 1) != 0 ? -1.0 : 1.0;
  // At most six factors of 2^+-1: every partial product is a normal number, even in fp8.
  return sign * (Contributes(element_hash, nranks, rank, 6) ? PowerOfTwo(hash >> 8, -1, 1) : 1.0);
}

double Comparand(const Case& c, uint64_t hash) {
  const bool infinities = TypeBytes(c.type) > 1;
  const double sign = (hash & 1) != 0 ? -1.0 : 1.0;
  if (infinities && hash % 257 == 0) return sign * INFINITY;
  const int mantissa_bits = std::min(Precision(c.type) - 1, 30);
  const uint64_t units = uint64_t{1} << mantissa_bits;
  const double mantissa = static_cast<double>(hash >> 8 & (units - 1)) / static_cast<double>(units);
  return sign * (1.0 + mantissa) * PowerOfTwo(Scramble(hash), -6, 6);
}

double FloatInput(const Case& c, int nranks, int rank, uint64_t element_hash) {
  const uint64_t hash = Scramble(element_hash, static_cast<uint64_t>(rank) + 1);
  switch (c.fold) {
    case Fold::kProd:
      return Multiplicand(nranks, rank, element_hash, hash);
    case Fold::kMax:
    case Fold::kMin:
      return Comparand(c, hash);
    default:
      return Summand(c, nranks, rank, element_hash, hash);
  }
}

double FloatScalar(const Case& c, int rank) {
  constexpr double kScalars[] = {1, -1, 2, -2};
  return kScalars[Scramble(c.seed, 0x5ca1a7, static_cast<uint64_t>(rank)) % 4];
}

double FoldFloats(const Case& c, int nranks, size_t element) {
  const uint64_t element_hash = Scramble(c.seed, element);
  double total = 0;
  for (int rank = 0; rank < nranks; ++rank) {
    double value = FloatInput(c, nranks, rank, element_hash);
    if (c.fold == Fold::kPreMulSum) value *= FloatScalar(c, rank);
    if (rank == 0) {
      total = value;
    } else if (c.fold == Fold::kProd) {
      total *= value;
    } else if (c.fold == Fold::kMax) {
      total = std::max(total, value);
    } else if (c.fold == Fold::kMin) {
      total = std::min(total, value);
    } else {
      total += value;
    }
  }
  return c.fold == Fold::kAvg ? total / nranks : total;
}

// ---- elements ----

uint64_t FoldedElement(const Case& c, int nranks, size_t element) {
  if (IsFloatType(c.type)) return EncodeFloat(c.type, FoldFloats(c, nranks, element));
  return FoldIntegers(c, nranks, element) & (~uint64_t{0} >> (64 - 8 * TypeBytes(c.type)));
}

// Element `index` of the input of `rank`.
uint64_t InputElement(const Case& c, int nranks, int rank, size_t index) {
  const uint64_t mask = ~uint64_t{0} >> (64 - 8 * TypeBytes(c.type));
  if (!Folds(c.call)) return Scramble(c.seed + index, static_cast<uint64_t>(rank) + 1) & mask;
  if (IsFloatType(c.type)) return EncodeFloat(c.type, FloatInput(c, nranks, rank, Scramble(c.seed, index)));
  return IntegerInput(c, rank, index) & mask;
}

// For averages of floats: 2 ulp, or half an ulp for 1/n, for the product with it, and for every addition. Summands have
// one sign, so none of these exceeds the result's ulp.
bool CloseEnough(const Case& c, int nranks, size_t element, uint64_t got) {
  const double expected = FoldFloats(c, nranks, element);
  const double ulps = std::max(2.0, (nranks + 1) / 2.0);
  return std::fabs(DecodeFloat(c.type, got) - expected) <= ulps * UlpAt(c.type, expected);
}

bool Matches(const Case& c, int nranks, int rank, size_t index, uint64_t got, uint64_t expected) {
  if (got == expected) return true;
  if (!Folds(c.call) || !IsFloatType(c.type)) return false;
  const double value = DecodeFloat(c.type, got);
  if (value == 0 && DecodeFloat(c.type, expected) == 0) return true;  // the sign of zero depends on the order
  if (c.fold != Fold::kAvg) return false;
  const size_t offset = c.call == Call::kReduceScatter ? static_cast<size_t>(rank) * c.count : 0;
  return CloseEnough(c, nranks, index + offset, got);
}

// Compares `elements` elements; `expected(index)` and `matches(index, got, expected)` decide.
template <class Expected, class Equal>
std::string CompareAll(const Case& c, const void* data, size_t elements, Expected expected, Equal equal) {
  std::string text;
  size_t wrong = 0;
  for (size_t i = 0; i < elements; ++i) {
    const uint64_t want = expected(i);
    const uint64_t got = LoadElement(data, c.type, i);
    if (equal(i, got, want)) continue;
    if (++wrong <= kShownErrors) {
      text += " [" + std::to_string(i) + "] is " + ElementText(c.type, got);
      text += ", not " + ElementText(c.type, want) + ";";
    }
  }
  if (wrong == 0) return "";
  return std::to_string(wrong) + " of " + std::to_string(elements) + " elements wrong:" + text;
}

}  // namespace

const char* CallName(Call call) {
  constexpr const char* kNames[] = {"AllReduce", "Reduce",   "ReduceScatter", "Broadcast", "Bcast",
                                    "AllGather", "AlltoAll", "Gather",        "Scatter"};
  return kNames[static_cast<int>(call)];
}

const char* FoldName(Fold fold) {
  constexpr const char* kNames[] = {"sum", "prod", "max", "min",         "avg",       "premulsum",
                                    "and", "or",   "xor", "logical and", "logical or"};
  return kNames[static_cast<int>(fold)];
}

bool Folds(Call call) { return call == Call::kAllReduce || call == Call::kReduce || call == Call::kReduceScatter; }

bool HasRoot(Call call) {
  return call == Call::kReduce || call == Call::kBroadcast || call == Call::kBcast || call == Call::kGather ||
         call == Call::kScatter;
}

bool HasInPlace(Call call) { return call != Call::kAllToAll; }

std::string Case::Text() const {
  char text[160];
  std::snprintf(text, sizeof text, "%s %s%s%s count %zu root %d seed 0x%llx", CallName(call), TypeName(type),
                Folds(call) ? " " : "", Folds(call) ? FoldName(fold) : "", count, root,
                static_cast<unsigned long long>(seed));
  return text;
}

size_t SendElements(const Case& c, int nranks, int rank) {
  switch (c.call) {
    case Call::kReduceScatter:
    case Call::kAllToAll:
      return c.count * static_cast<size_t>(nranks);
    case Call::kBroadcast:
    case Call::kBcast:
      return rank == c.root ? c.count : 0;
    case Call::kScatter:
      return rank == c.root ? c.count * static_cast<size_t>(nranks) : 0;
    default:
      return c.count;
  }
}

size_t RecvElements(const Case& c, int nranks, int rank) {
  switch (c.call) {
    case Call::kAllGather:
    case Call::kAllToAll:
      return c.count * static_cast<size_t>(nranks);
    case Call::kReduce:
      return rank == c.root ? c.count : 0;
    case Call::kGather:
      return rank == c.root ? c.count * static_cast<size_t>(nranks) : 0;
    default:
      return c.count;
  }
}

size_t InPlaceOffset(const Case& c, int nranks, int rank) {
  const bool blocks = c.call == Call::kAllGather || c.call == Call::kReduceScatter || c.call == Call::kGather ||
                      c.call == Call::kScatter;
  return blocks ? static_cast<size_t>(rank) * c.count : 0;
}

void FillSend(const Case& c, int nranks, int rank, void* send) {
  const size_t elements = SendElements(c, nranks, rank);
  for (size_t i = 0; i < elements; ++i) StoreElement(send, c.type, i, InputElement(c, nranks, rank, i));
}

uint64_t ExpectedElement(const Case& c, int nranks, int rank, size_t index) {
  const size_t block = c.count == 0 ? 0 : index / c.count;
  const size_t within = c.count == 0 ? 0 : index % c.count;
  switch (c.call) {
    case Call::kAllReduce:
    case Call::kReduce:
      return FoldedElement(c, nranks, index);
    case Call::kReduceScatter:
      return FoldedElement(c, nranks, static_cast<size_t>(rank) * c.count + index);
    case Call::kBroadcast:
    case Call::kBcast:
      return InputElement(c, nranks, c.root, index);
    case Call::kAllGather:
    case Call::kGather:
      return InputElement(c, nranks, static_cast<int>(block), within);
    case Call::kAllToAll:
      return InputElement(c, nranks, static_cast<int>(block), static_cast<size_t>(rank) * c.count + within);
    case Call::kScatter:
      return InputElement(c, nranks, c.root, static_cast<size_t>(rank) * c.count + index);
  }
  return 0;
}

std::string CheckRecv(const Case& c, int nranks, int rank, const void* recv) {
  return CompareAll(
      c, recv, RecvElements(c, nranks, rank), [&](size_t i) { return ExpectedElement(c, nranks, rank, i); },
      [&](size_t i, uint64_t got, uint64_t want) { return Matches(c, nranks, rank, i, got, want); });
}

std::string CheckSend(const Case& c, int nranks, int rank, const void* send, size_t skip_begin, size_t skip_end) {
  return CompareAll(
      c, send, SendElements(c, nranks, rank), [&](size_t i) { return InputElement(c, nranks, rank, i); },
      [&](size_t i, uint64_t got, uint64_t want) { return got == want || (i >= skip_begin && i < skip_end); });
}

uint64_t PreMulScalar(const Case& c, int nranks, int rank) {
  if (IsFloatType(c.type)) return EncodeFloat(c.type, FloatScalar(c, rank));
  return IntegerScalar(c, rank) & (~uint64_t{0} >> (64 - 8 * TypeBytes(c.type)));
}

}  // namespace axccl::harness
