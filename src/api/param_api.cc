// ncclParam*: the parameter table for applications. Secrets show as "<set>".
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "nccl.h"
#include "src/api/context.h"
#include "src/api/export.h"
#include "src/base/log.h"
#include "src/base/param.h"
#include "src/base/per_thread.h"

namespace axccl::api {
namespace {

// What a thread was given and may read until it calls again.
struct Answers {
  std::string by_handle, by_key;
  std::vector<const char*> names;  // the caller may write to it
};

// A handle is the address of a row of the table: there is nothing to free, it never becomes stale, and a foreign
// pointer is recognised.
const param::Info* RowOf(ncclParamHandle_t handle) {
  const auto* const row = reinterpret_cast<const param::Info*>(handle);
  for (const param::Info& info : param::Table()) {
    if (&info == row) return row;
  }
  return nullptr;
}

Result<const param::Info*> Find(const char* call, ncclParamHandle_t handle, const void* out) {
  if (out == nullptr) return InvalidArgument("%s: argument out is NULL; pass where the value is to go", call);
  if (const param::Info* const info = RowOf(handle); info != nullptr) return info;
  return InvalidArgument("%s: argument h (%p) is not a parameter handle; get one with ncclParamBind", call,
                         static_cast<void*>(handle));
}

Result<const param::Info*> Find(const char* call, const char* key) {
  if (const param::Info* const info = param::Find(key); info != nullptr) return info;
  return InvalidArgument("%s: argument key is \"%s\", which is not a parameter; see ncclParamGetAllParameterKeys", call,
                         key);
}

template <class T>
Status GetNumber(const char* call, ncclParamHandle_t handle, T* out) {
  AXCCL_ASSIGN_OR_RETURN(const param::Info* const info, Find(call, handle, out));
  const std::string text = param::GetShown(info->name);
  int64_t value = 0;
  if (!param::ParseInt(*info, text, &value))
    return InvalidArgument("%s: %s is \"%s\", of type %s; use ncclParamGetStr", call, info->name, text.c_str(),
                           info->type);
  const bool fits = std::is_signed_v<T> ? value >= static_cast<int64_t>(std::numeric_limits<T>::min()) &&
                                              value <= static_cast<int64_t>(std::numeric_limits<T>::max())
                                        : value >= 0 && static_cast<uint64_t>(value) <= std::numeric_limits<T>::max();
  if (!fits)
    return InvalidArgument("%s: %s is %lld, which %zu bits do not hold; use ncclParamGetI64", call, info->name,
                           static_cast<long long>(value), sizeof(T) * 8);
  *out = static_cast<T>(value);
  return Status();
}

// The bytes that ncclParamGet returns.
std::string RawValue(const param::Info& info) {
  const std::string text = param::GetShown(info.name);
  int64_t number;
  double seconds;
  if (param::ParseInt(info, text, &number)) return std::string(reinterpret_cast<const char*>(&number), sizeof(number));
  if (param::ParseSeconds(info, text, &seconds))
    return std::string(reinterpret_cast<const char*>(&seconds), sizeof(seconds));
  return text;
}

}  // namespace
}  // namespace axccl::api

using namespace axccl;       // NOLINT: the C entry points
using namespace axccl::api;  // NOLINT

AXCCL_API ncclResult_t pncclParamBind(ncclParamHandle_t* out, const char* key) {
  return EntryInAnyProcess("ncclParamBind", [&](const char* call) -> Status {
    if (out == nullptr || key == nullptr)
      return InvalidArgument("%s: argument %s is NULL; pass both", call, out == nullptr ? "out" : "key");
    AXCCL_ASSIGN_OR_RETURN(const param::Info* const info, Find(call, key));
    *out = reinterpret_cast<ncclParamHandle_t>(const_cast<param::Info*>(info));
    return Status();
  });
}
AXCCL_TWIN(ParamBind)

#define AXCCL_PARAM_GET_NUMBER(width, type)                                                                     \
  AXCCL_API ncclResult_t pncclParamGet##width(ncclParamHandle_t h, type* out) {                                 \
    return EntryInAnyProcess("ncclParamGet" #width, [&](const char* call) { return GetNumber(call, h, out); }); \
  }                                                                                                             \
  AXCCL_TWIN(ParamGet##width)

AXCCL_PARAM_GET_NUMBER(I8, int8_t)
AXCCL_PARAM_GET_NUMBER(I16, int16_t)
AXCCL_PARAM_GET_NUMBER(I32, int32_t)
AXCCL_PARAM_GET_NUMBER(I64, int64_t)
AXCCL_PARAM_GET_NUMBER(U8, uint8_t)
AXCCL_PARAM_GET_NUMBER(U16, uint16_t)
AXCCL_PARAM_GET_NUMBER(U32, uint32_t)
AXCCL_PARAM_GET_NUMBER(U64, uint64_t)

AXCCL_API ncclResult_t pncclParamGetStr(ncclParamHandle_t h, const char** out) {
  return EntryInAnyProcess("ncclParamGetStr", [&](const char* call) -> Status {
    AXCCL_ASSIGN_OR_RETURN(const param::Info* const info, Find(call, h, out));
    std::string& text = PerThread<Answers>::Get().by_handle;
    text = param::GetShown(info->name);
    *out = text.c_str();
    return Status();
  });
}
AXCCL_TWIN(ParamGetStr)

AXCCL_API ncclResult_t pncclParamGet(ncclParamHandle_t h, void* out, int maxLen, int* len) {
  return EntryInAnyProcess("ncclParamGet", [&](const char* call) -> Status {
    AXCCL_ASSIGN_OR_RETURN(const param::Info* const info, Find(call, h, out));
    if (len == nullptr) return InvalidArgument("%s: argument len is NULL; pass where the size is to go", call);
    const std::string raw = RawValue(*info);
    *len = static_cast<int>(raw.size());
    if (maxLen < *len)
      return InvalidArgument("%s: argument maxLen is %d, %s has %d bytes; pass a larger buffer", call, maxLen,
                             info->name, *len);
    std::memcpy(out, raw.data(), raw.size());
    return Status();
  });
}
AXCCL_TWIN(ParamGet)

AXCCL_API ncclResult_t pncclParamGetParameter(const char* key, const char** value, int* valueLen) {
  return EntryInAnyProcess("ncclParamGetParameter", [&](const char* call) -> Status {
    if (key == nullptr || value == nullptr)
      return InvalidArgument("%s: argument %s is NULL; pass both", call, key == nullptr ? "key" : "value");
    AXCCL_ASSIGN_OR_RETURN(const param::Info* const info, Find(call, key));
    std::string& text = PerThread<Answers>::Get().by_key;
    text = param::GetShown(info->name);
    *value = text.c_str();
    if (valueLen != nullptr) *valueLen = static_cast<int>(text.size());
    return Status();
  });
}
AXCCL_TWIN(ParamGetParameter)

AXCCL_API ncclResult_t pncclParamGetAllParameterKeys(const char*** table, int* tableLen) {
  return EntryInAnyProcess("ncclParamGetAllParameterKeys", [&](const char* call) -> Status {
    if (table == nullptr || tableLen == nullptr)
      return InvalidArgument("%s: argument %s is NULL; pass both", call, table == nullptr ? "table" : "tableLen");
    std::vector<const char*>& names = PerThread<Answers>::Get().names;
    names.clear();
    for (const param::Info& info : param::Table()) names.push_back(info.name);
    *table = names.data();
    *tableLen = static_cast<int>(names.size());
    return Status();
  });
}
AXCCL_TWIN(ParamGetAllParameterKeys)

AXCCL_API void pncclParamDumpAll(void) {
  (void)EntryInAnyProcess("ncclParamDumpAll", [&](const char*) {
    for (const param::Info& info : param::Table()) {
      param::Source source = param::Source::kDefault;
      (void)param::Get(info.name, &source);
      log::WriteAlways("%s=%s (%s, default \"%s\"): %s", info.name, param::GetShown(info.name).c_str(),
                       param::SourceName(source).c_str(), info.fallback, info.meaning);
    }
    return Status();
  });
}
AXCCL_TWIN(ParamDumpAll)
