#include "src/program/element.h"

#include <charconv>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "src/program/kinds.h"

namespace axccl::program {
namespace {

constexpr size_t kLongest = 8;  // bytes of an element

// The bits of an element of up to 8 bytes, and back.
uint64_t Load(DataType type, const uint8_t* bytes) {
  const auto as = [&](auto word) {
    std::memcpy(&word, bytes, sizeof word);
    return uint64_t{word};
  };
  switch (ElementSize(type)) {
    case 1:
      return as(uint8_t{});
    case 2:
      return as(uint16_t{});
    case 4:
      return as(uint32_t{});
    default:
      return as(uint64_t{});
  }
}

void Store(DataType type, uint64_t bits, uint8_t* bytes) {
  const auto as = [&](auto word) { std::memcpy(bytes, &word, sizeof word); };
  switch (ElementSize(type)) {
    case 1:
      return as(static_cast<uint8_t>(bits));
    case 2:
      return as(static_cast<uint16_t>(bits));
    case 4:
      return as(static_cast<uint32_t>(bits));
    default:
      return as(bits);
  }
}

template <class To, class From>
To As(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

// Finite numbers of IEEE 754's binary16: 1 bit sign, 5 bits exponent, 10 bits fraction.
float FromHalf(uint64_t bits) {
  const int exponent = static_cast<int>(bits >> 10 & 31), fraction = static_cast<int>(bits & 1023);
  const float size = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                                   : std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
  return bits >> 15 != 0 ? -size : size;
}

// For values that are halves; the bits of another value are those of some half.
uint64_t ToHalf(float value) {
  const uint64_t sign = std::signbit(value) ? 1 << 15 : 0;
  const float size = std::fabs(value);
  if (!(size < 65536)) return sign | 31 << 10;
  if (size < std::ldexp(1.0f, -14)) return sign | static_cast<uint64_t>(std::ldexp(size, 24));
  const int exponent = std::ilogb(size);
  const auto digits = static_cast<uint64_t>(std::ldexp(size, 10 - exponent));  // the first one adds 1 to the exponent
  return sign | ((static_cast<uint64_t>(exponent + 14) << 10) + digits);
}

template <class T>
std::string Shortest(T value) {
  char text[64];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

std::string FloatText(DataType type, uint64_t bits) {
  if (type == DataType::kFloat64) return Shortest(As<double>(bits));
  if (type == DataType::kFloat16) return Shortest(FromHalf(bits));
  const auto word = static_cast<uint32_t>(type == DataType::kBfloat16 ? bits << 16 : bits);
  return Shortest(As<float>(word));
}

bool IsFinite(DataType type, uint64_t bits) {
  if (type == DataType::kFloat64) return std::isfinite(As<double>(bits));
  if (type == DataType::kFloat16) return (bits >> 10 & 31) != 31;
  return std::isfinite(As<float>(static_cast<uint32_t>(type == DataType::kBfloat16 ? bits << 16 : bits)));
}

template <class T>
bool ReadAll(std::string_view text, T* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

bool ParseFloat(DataType type, std::string_view text, uint64_t* bits) {
  if (text.starts_with("0x")) {
    text.remove_prefix(2);
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *bits, 16);
    return error == std::errc() && end == text.data() + text.size();
  }
  if (type == DataType::kFloat64) {
    double value = 0;
    if (!ReadAll(text, &value)) return false;
    *bits = As<uint64_t>(value);
    return true;
  }
  float value = 0;
  if (!ReadAll(text, &value)) return false;
  const auto word = As<uint32_t>(value);
  *bits = type == DataType::kFloat16 ? ToHalf(value) : type == DataType::kBfloat16 ? word >> 16 : word;
  return true;
}

bool ParseBits(DataType type, std::string_view text, uint64_t* bits) {
  if (type == DataType::kBool) {
    *bits = text == "true" ? 1 : 0;
    return true;
  }
  if (IsFloat(type)) return ParseFloat(type, text, bits);
  if (IsUnsigned(type)) return ReadAll(text, bits);
  int64_t value = 0;
  if (!ReadAll(text, &value)) return false;
  *bits = static_cast<uint64_t>(value);
  return true;
}

}  // namespace

std::string ElementText(DataType type, const uint8_t* bytes) {
  const uint64_t bits = Load(type, bytes);
  if (type == DataType::kBool) return bits != 0 ? "true" : "false";
  if (IsUnsigned(type)) return std::to_string(bits);
  if (!IsFloat(type)) {
    const int unused = static_cast<int>(8 * (kLongest - ElementSize(type)));
    return std::to_string(static_cast<int64_t>(bits << unused) >> unused);
  }
  if (IsFinite(type, bits)) return FloatText(type, bits);
  char text[20];
  std::snprintf(text, sizeof text, "0x%0*" PRIx64, static_cast<int>(2 * ElementSize(type)), bits);
  return text;
}

bool ParseElement(DataType type, std::string_view text, uint8_t* bytes) {
  uint64_t bits = 0;
  if (!ParseBits(type, text, &bits)) return false;
  // A number that does not fit, or is spelled otherwise, has another text.
  Store(type, bits, bytes);
  return ElementText(type, bytes) == text;
}

}  // namespace axccl::program
