#include "src/program/stablehlo/literal.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <string>

#include "src/program/kinds.h"

namespace axccl::program::stablehlo {
namespace {

struct FloatForm {
  int exponent_bits;
  int fraction_bits;
};

FloatForm FormOf(DataType type) {
  if (type == DataType::kFloat16) return {5, 10};
  if (type == DataType::kBfloat16) return {8, 7};
  return type == DataType::kFloat32 ? FloatForm{8, 23} : FloatForm{11, 52};
}

// The float of that form nearest to `value`, to even in the middle; false if that is infinite.
bool Round(double value, FloatForm form, uint64_t* bits) {
  const int least = 2 - (1 << (form.exponent_bits - 1));  // exponent of the smallest normal number
  const double size = std::fabs(value);
  const int exponent = size == 0 ? least : std::max(std::ilogb(size), least);
  const auto digits = static_cast<uint64_t>(std::nearbyint(std::ldexp(size, form.fraction_bits - exponent)));
  // The first digit of a normal number adds 1 to the exponent.
  *bits = (static_cast<uint64_t>(exponent - least) << form.fraction_bits) + digits;
  if (*bits >> form.fraction_bits >= (uint64_t{1} << form.exponent_bits) - 1) return false;
  if (std::signbit(value)) *bits |= uint64_t{1} << (form.exponent_bits + form.fraction_bits);
  return true;
}

bool ParseFloat(DataType type, std::string_view word, uint64_t* bits) {
  const char *begin = word.data(), *const end = begin + word.size();
  if (word.starts_with("0x") || word.starts_with("0X")) {
    const auto [behind, error] = std::from_chars(begin + 2, end, *bits, 16);
    return error == std::errc() && behind == end && word.size() > 2 &&
           (ElementSize(type) == 8 || *bits >> 8 * ElementSize(type) == 0);
  }
  double value = 0;
  return ParseDecimal(word, &value) && Round(value, FormOf(type), bits);
}

bool ParseInteger(DataType type, std::string_view word, uint64_t* bits) {
  const bool is_unsigned = NameOf(type).starts_with("u");
  const int width = static_cast<int>(8 * ElementSize(type));
  const char *const begin = word.data(), *const end = begin + word.size();
  if (is_unsigned) {
    const auto [behind, error] = std::from_chars(begin, end, *bits);
    return error == std::errc() && behind == end && (width == 64 || *bits >> width == 0);
  }
  int64_t value = 0;
  const auto [behind, error] = std::from_chars(begin, end, value);
  *bits = static_cast<uint64_t>(value);
  return error == std::errc() && behind == end && (value >> (width - 1) == 0 || value >> (width - 1) == -1);
}

bool ReadElement(Scanner* in, DataType type, Literal* literal) {
  const size_t mark = in->Mark();
  if (in->failed()) return false;
  const std::string_view word = in->Element();
  uint64_t bits = word == "true" ? 1 : 0;
  const bool good = type == DataType::kBool ? word == "true" || word == "false"
                    : IsFloat(type)         ? ParseFloat(type, word, &bits)
                                            : ParseInteger(type, word, &bits);
  if (!good) {
    in->Back(mark);
    return in->Expected("an element of the type " + std::string(NameOf(type)));
  }
  uint8_t bytes[sizeof bits];
  for (size_t i = 0; i < sizeof bits; ++i) bytes[i] = static_cast<uint8_t>(bits >> 8 * i);
  literal->bytes.insert(literal->bytes.end(), bytes, bytes + ElementSize(type));
  return true;
}

// Reads the list of dimension `dim`.
bool ReadList(Scanner* in, const TensorType& type, size_t dim, Literal* literal) {
  const size_t mark = in->Mark();
  if (dim == type.dims.size()) return ReadElement(in, type.data_type, literal);
  if (!in->Expect("[")) return false;
  int64_t items = 0;
  if (in->Peek() != ']') {
    do {
      if (!ReadList(in, type, dim + 1, literal)) return false;
      ++items;
    } while (in->Try(","));
  }
  if (!in->Expect("]")) return false;
  return items == type.dims[dim] ||
         in->Fail(mark, "expected a list of " + std::to_string(type.dims[dim]) + ", the size of dimension " +
                            std::to_string(dim) + ", not of " + std::to_string(items));
}

int Digit(char c) {
  return c >= '0' && c <= '9'   ? c - '0'
         : c >= 'a' && c <= 'f' ? c - 'a' + 10
         : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                : -1;
}

bool ReadHex(Scanner* in, const TensorType& type, Literal* literal) {
  const size_t mark = in->Mark(), size = ElementSize(type.data_type);
  std::string_view digits;
  if (!in->String(&digits)) return false;
  if (!digits.starts_with("0x") || digits.size() % 2 != 0)
    return in->Fail(mark, "expected \"0x\" and two digits for each byte");
  for (size_t i = 2; i < digits.size(); i += 2) {
    const int high = Digit(digits[i]), low = Digit(digits[i + 1]);
    if (high < 0 || low < 0) return in->Fail(mark + 1 + i, "expected hexadecimal digits");
    literal->bytes.push_back(static_cast<uint8_t>(high * 16 + low));
    if (type.data_type == DataType::kBool && literal->bytes.back() > 1)
      return in->Fail(mark + 1 + i, "expected 00 or 01 as an element of the type i1");
  }
  const auto elements = static_cast<uint64_t>(Elements(type));
  const bool fits = literal->bytes.size() == size || literal->bytes.size() / size == elements;
  return (fits && literal->bytes.size() % size == 0) ||
         in->Fail(mark, "expected the bytes of one element, or of " + std::to_string(elements));
}

}  // namespace

bool ReadLiteral(Scanner* in, const TensorType& type, Literal* literal) {
  const size_t mark = in->Mark(), size = ElementSize(type.data_type);
  literal->bytes.clear();
  if (in->Peek() == '>') return Elements(type) == 0 || in->Fail(mark, "expected elements, because the type has some");
  const bool good = in->Peek() == '"'   ? ReadHex(in, type, literal)
                    : in->Peek() == '[' ? ReadList(in, type, 0, literal)
                                        : ReadElement(in, type.data_type, literal);
  if (!good) return false;
  std::vector<uint8_t>& bytes = literal->bytes;
  if (bytes.size() > size && std::equal(bytes.begin() + static_cast<ptrdiff_t>(size), bytes.end(), bytes.begin()))
    bytes.resize(size);
  return true;
}

}  // namespace axccl::program::stablehlo
