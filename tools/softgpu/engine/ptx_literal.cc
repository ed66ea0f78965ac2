#include "tools/softgpu/engine/ptx_literal.h"

#include <bit>
#include <charconv>
#include <cstdlib>
#include <string>

namespace softgpu::engine {
namespace {

bool ParseDigits(std::string_view digits, int base, uint64_t* value) {
  const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), *value, base);
  return status == std::errc() && end == digits.data() + digits.size() && !digits.empty();
}

bool HasPrefix(std::string_view word, char letter) {
  return word.size() > 2 && word[0] == '0' && (word[1] | 0x20) == letter;
}

}  // namespace

bool ParseLiteral(std::string_view word, bool negative, OperandIr* operand) {
  operand->kind = OperandIr::kImmediate;
  operand->literal = OperandIr::kInteger;
  if (HasPrefix(word, 'f') && word.size() == 10) {
    operand->literal = OperandIr::kFloat32;
    if (!ParseDigits(word.substr(2), 16, &operand->bits)) return false;
    if (negative) operand->bits ^= 1ull << 31;
    return true;
  }
  if (HasPrefix(word, 'd') && word.size() == 18) {
    operand->literal = OperandIr::kFloat64;
    if (!ParseDigits(word.substr(2), 16, &operand->bits)) return false;
    if (negative) operand->bits ^= 1ull << 63;
    return true;
  }
  if (word.find('.') != word.npos) {
    operand->literal = OperandIr::kFloat64;
    const std::string copy(word);
    char* end = nullptr;
    const double value = std::strtod(copy.c_str(), &end);
    operand->bits = std::bit_cast<uint64_t>(negative ? -value : value);
    return *end == '\0';
  }
  while (!word.empty() && (word.back() == 'U' || word.back() == 'u')) word.remove_suffix(1);
  bool good = false;
  if (HasPrefix(word, 'x')) {
    good = ParseDigits(word.substr(2), 16, &operand->bits);
  } else if (HasPrefix(word, 'b')) {
    good = ParseDigits(word.substr(2), 2, &operand->bits);
  } else if (word.size() > 1 && word[0] == '0') {
    good = ParseDigits(word.substr(1), 8, &operand->bits);
  } else {
    good = ParseDigits(word, 10, &operand->bits);
  }
  if (negative) operand->bits = -operand->bits;
  return good;
}

}  // namespace softgpu::engine
