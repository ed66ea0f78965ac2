#include "perf/common/data.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "perf/common/types.h"

namespace axccl::perf {
namespace {

// The finalizer of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// One element position of a sequence: a hash common to all ranks and one per rank.
struct Draw {
  Draw(const Sequence& s, size_t index) : common(Mix(Mix(s.rep * 2 + 1) ^ (index % kPeriod))) {}
  uint64_t OfRank(int rank) const { return Mix(common + static_cast<uint64_t>(rank) + 1); }
  // Among every `stride` neighbouring ranks one takes part.
  bool TakesPart(int rank, uint64_t stride) const {
    return stride <= 1 || static_cast<uint64_t>(rank) % stride == (common >> 8) % stride;
  }
  uint64_t common;
};

uint64_t CeilDiv(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

// ---- floats ----

// Largest N such that all whole numbers up to N are exact.
uint64_t ExactUpTo(int type) { return uint64_t{1} << (FormatOf(type).mantissa_bits + 1); }

// A power of two between 1/4 and 4, the same on all ranks, so that exponents vary.
double CommonScale(const Draw& draw) { return std::ldexp(1.0, static_cast<int>(draw.common % 5) - 2); }

double SumInput(const Draw& draw, int rank, uint64_t ranks, uint64_t budget) {
  uint64_t h = draw.OfRank(rank);
  uint64_t each = budget / ranks;
  if (each > 0) return static_cast<double>(h % (2 * each + 1)) - static_cast<double>(each);
  return draw.TakesPart(rank, CeilDiv(ranks, budget)) ? (h & 1 ? 1.0 : -1.0) : 0.0;
}

// Multiples of the number of ranks where the type can hold their sum, so that dividing before or after the sum gives
// the same. Where it cannot, one rank gives all.
double AvgInput(const Draw& draw, int rank, uint64_t ranks, uint64_t budget) {
  uint64_t h = draw.OfRank(rank);
  uint64_t each = budget / (ranks * ranks);
  if (each > 0) return static_cast<double>(ranks * (h % (each + 1)));
  uint64_t givers = budget / ranks;
  if (givers > 0) return draw.TakesPart(rank, CeilDiv(ranks, givers)) ? static_cast<double>(ranks) : 0.0;
  return draw.TakesPart(rank, ranks) ? static_cast<double>(1 + h % budget) : 0.0;
}

// Signs everywhere, a factor 2 or 1/2 on at most four ranks.
double ProdInput(const Draw& draw, int rank, uint64_t ranks) {
  uint64_t h = draw.OfRank(rank);
  int exponent = draw.TakesPart(rank, CeilDiv(ranks, 4)) ? static_cast<int>((h >> 8) % 3) - 1 : 0;
  return std::ldexp(h & 1 ? -1.0 : 1.0, exponent);
}

double FloatInput(const Sequence& s, const Draw& draw, int rank) {
  uint64_t ranks = static_cast<uint64_t>(s.ranks);
  uint64_t budget = ExactUpTo(s.type);
  switch (s.op) {
    case kSum:
      return CommonScale(draw) * SumInput(draw, rank, ranks, budget);
    case kMulSum:
      return CommonScale(draw) * SumInput(draw, rank, ranks, budget / 2);
    case kAvg:
      return CommonScale(draw) * AvgInput(draw, rank, ranks, budget);
    case kProd:
      return ProdInput(draw, rank, ranks);
    default:
      return CommonScale(draw) * SumInput(draw, rank, 1, budget);  // max, min
  }
}

double FloatResult(const Sequence& s, const Draw& draw) {
  double result = FloatInput(s, draw, 0);
  for (int rank = 1; rank < s.ranks; ++rank) {
    double x = FloatInput(s, draw, rank);
    switch (s.op) {
      case kProd:
        result *= x;
        break;
      case kMax:
        result = std::max(result, x);
        break;
      case kMin:
        result = std::min(result, x);
        break;
      case kMulSum:
        result += x * MulSumScalar(rank);
        break;
      default:
        result += x;
    }
  }
  return s.op == kAvg ? result / s.ranks : result;
}

// ---- integers ----

uint64_t LowBits(int bits) { return bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1; }

int64_t SignExtend(uint64_t value, int bits) {
  int unused = 64 - bits;
  return static_cast<int64_t>(value << unused) >> unused;
}

// Small enough that no sum wraps, because the average of a wrapped sum is not defined.
uint64_t AvgIntegerInput(const Sequence& s, const Draw& draw, int rank) {
  const NumberFormat& f = FormatOf(s.type);
  uint64_t h = draw.OfRank(rank);
  uint64_t highest = LowBits(f.is_signed ? f.bits - 1 : f.bits);
  uint64_t each = highest / static_cast<uint64_t>(s.ranks);
  if (each == 0) {
    if (!draw.TakesPart(rank, static_cast<uint64_t>(s.ranks))) return 0;
    each = highest;
  }
  uint64_t magnitude = each == ~uint64_t{0} ? h : h % (each + 1);
  return f.is_signed && (h >> 63) != 0 ? 0 - magnitude : magnitude;
}

uint64_t IntegerInput(const Sequence& s, const Draw& draw, int rank) {
  switch (s.op) {
    case kAvg:
      return AvgIntegerInput(s, draw, rank);
    case kProd:
      return draw.OfRank(rank) | 1;  // odd numbers use all bits
    default:
      return draw.OfRank(rank);
  }
}

uint64_t Larger(const NumberFormat& f, uint64_t a, uint64_t b) {
  bool a_wins =
      f.is_signed ? SignExtend(a, f.bits) > SignExtend(b, f.bits) : (a & LowBits(f.bits)) > (b & LowBits(f.bits));
  return a_wins ? a : b;
}

uint64_t IntegerResult(const Sequence& s, const Draw& draw) {
  const NumberFormat& f = FormatOf(s.type);
  uint64_t result = IntegerInput(s, draw, 0);
  for (int rank = 1; rank < s.ranks; ++rank) {
    uint64_t x = IntegerInput(s, draw, rank);
    switch (s.op) {
      case kProd:
        result *= x;
        break;
      case kMax:
        result = Larger(f, result, x);
        break;
      case kMin:
        result = Larger(f, result, x) == x ? result : x;
        break;
      case kMulSum:
        result += x * static_cast<uint64_t>(MulSumScalar(rank));
        break;
      default:
        result += x;
    }
  }
  if (s.op != kAvg) return result;
  if (!f.is_signed) return (result & LowBits(f.bits)) / static_cast<uint64_t>(s.ranks);
  return static_cast<uint64_t>(SignExtend(result, f.bits) / s.ranks);
}

// ---- sequences ----

uint64_t ElementBits(const Sequence& s, size_t index) {
  Draw draw(s, index);
  if (s.op == kMove) return draw.OfRank(s.source);
  if (FormatOf(s.type).is_float) {
    return EncodeFloat(s.type, s.source == kReduced ? FloatResult(s, draw) : FloatInput(s, draw, s.source));
  }
  return s.source == kReduced ? IntegerResult(s, draw) : IntegerInput(s, draw, s.source);
}

template <class Word>
void Generate(const Sequence& s, size_t first, size_t count, char* out) {
  for (size_t i = 0; i < count; ++i) {
    Word bits = static_cast<Word>(ElementBits(s, first + i));
    std::memcpy(out + i * sizeof(Word), &bits, sizeof(Word));
  }
}

void GenerateAny(const Sequence& s, size_t first, size_t count, char* out) {
  switch (ElementBytes(s.type)) {
    case 1:
      return Generate<uint8_t>(s, first, count, out);
    case 2:
      return Generate<uint16_t>(s, first, count, out);
    case 4:
      return Generate<uint32_t>(s, first, count, out);
    default:
      return Generate<uint64_t>(s, first, count, out);
  }
}

uint64_t LoadBits(const char* at, size_t bytes) {
  uint64_t bits = 0;
  std::memcpy(&bits, at, bytes);  // little-endian, as every host this runs on
  return bits;
}

bool SameElement(const Sequence& s, uint64_t got, uint64_t want) {
  if (got == want) return true;
  if (s.op == kMove || !FormatOf(s.type).is_float) return false;
  double a = DecodeFloat(s.type, got);
  double b = DecodeFloat(s.type, want);
  if (s.op == kAvg) return std::fabs(a - b) <= 2 * UlpAt(s.type, b);
  return a == b;  // the zeros are equal, NaN is not
}

}  // namespace

void FillSequence(const Sequence& sequence, size_t first, size_t count, void* dst) {
  char* out = static_cast<char*>(dst);
  size_t size = ElementBytes(sequence.type);
  size_t period = std::min(count, kPeriod);
  GenerateAny(sequence, first, period, out);
  for (size_t done = period; done < count; done += kPeriod) {
    std::memcpy(out + done * size, out, std::min(kPeriod, count - done) * size);
  }
}

size_t CountWrong(const Sequence& sequence, size_t first, size_t count, const void* data) {
  const char* at = static_cast<const char*>(data);
  size_t size = ElementBytes(sequence.type);
  size_t period = std::min(count, kPeriod);
  std::vector<char> want(period * size);
  GenerateAny(sequence, first, period, want.data());
  size_t wrong = 0;
  for (size_t done = 0; done < count; done += kPeriod) {
    size_t here = std::min(kPeriod, count - done);
    const char* block = at + done * size;
    if (std::memcmp(block, want.data(), here * size) == 0) continue;
    for (size_t i = 0; i < here; ++i) {
      wrong += !SameElement(sequence, LoadBits(block + i * size, size), LoadBits(want.data() + i * size, size));
    }
  }
  return wrong;
}

}  // namespace axccl::perf
