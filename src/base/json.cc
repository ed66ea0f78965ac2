#include "src/base/json.h"

#include <cmath>
#include <cstdlib>
#include <new>

namespace axccl {

void JsonWriter::BeforeValue() {
  if (open_.empty()) return;
  switch (open_.back()) {
    case State::kKey:
      open_.pop_back();
      break;
    case State::kEmptyList:
      open_.back() = State::kList;
      break;
    case State::kList:
      std::fputc(',', out_);
      break;
    default:
      break;  // a value straight inside an object is a bug of the caller; the tests parse what is written
  }
}

void JsonWriter::Quote(const std::string& text) {
  std::fputc('"', out_);
  for (unsigned char c : text) {
    switch (c) {
      case '"':
        std::fputs("\\\"", out_);
        break;
      case '\\':
        std::fputs("\\\\", out_);
        break;
      case '\n':
        std::fputs("\\n", out_);
        break;
      case '\t':
        std::fputs("\\t", out_);
        break;
      default:
        // Bytes above ASCII may not be valid UTF-8 (environment, paths): shown as Latin-1 code points.
        if (c < 0x20 || c >= 0x7f) {
          std::fprintf(out_, "\\u%04x", c);
        } else {
          std::fputc(c, out_);
        }
    }
  }
  std::fputc('"', out_);
}

JsonWriter& JsonWriter::Key(const std::string& name) {
  if (!open_.empty() && open_.back() == State::kObject) std::fputc(',', out_);
  if (!open_.empty()) open_.back() = State::kObject;
  Quote(name);
  std::fputc(':', out_);
  open_.push_back(State::kKey);
  return *this;
}

void JsonWriter::BeginObject() {
  BeforeValue();
  std::fputc('{', out_);
  open_.push_back(State::kEmptyObject);
}

void JsonWriter::EndObject() {
  std::fputc('}', out_);
  open_.pop_back();
}

void JsonWriter::BeginList() {
  BeforeValue();
  std::fputc('[', out_);
  open_.push_back(State::kEmptyList);
}

void JsonWriter::EndList() {
  std::fputc(']', out_);
  open_.pop_back();
}

void JsonWriter::Null() {
  BeforeValue();
  std::fputs("null", out_);
}

void JsonWriter::String(const std::string& text) {
  BeforeValue();
  Quote(text);
}

void JsonWriter::Int(int64_t value) {
  BeforeValue();
  std::fprintf(out_, "%lld", static_cast<long long>(value));
}

void JsonWriter::Double(double value) {
  if (!std::isfinite(value)) return String(std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
  BeforeValue();
  std::fprintf(out_, "%.6f", value);
}

void JsonWriter::Bool(bool value) {
  BeforeValue();
  std::fputs(value ? "true" : "false", out_);
}

void JsonWriter::Strings(const std::vector<std::string>& texts) {
  BeginList();
  for (const std::string& text : texts) String(text);
  EndList();
}

void JsonWriter::CloseTo(size_t depth) {
  while (open_.size() > depth) {
    switch (open_.back()) {
      case State::kKey:
        Null();
        break;
      case State::kEmptyObject:
      case State::kObject:
        EndObject();
        break;
      default:
        EndList();
    }
  }
  if (depth == 0) std::fputc('\n', out_);
  std::fflush(out_);
}

std::string JsonText(const std::function<void(JsonWriter*)>& write) {
  char* data = nullptr;
  size_t size = 0;
  FILE* const memory = open_memstream(&data, &size);
  if (memory == nullptr) throw std::bad_alloc();
  JsonWriter json(memory);
  write(&json);
  json.CloseTo(0);
  std::fclose(memory);
  std::string text(data, size);
  std::free(data);
  return text;
}

}  // namespace axccl
