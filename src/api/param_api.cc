// ncclParam*: the parameter table, read from outside. Secrets show as "<set>".
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

// What a thread was handed out and may read until it asks again.
struct Answers {
  std::string by_handle, by_key;
  std::vector<const char*> names;  // the caller may write to it
};

// A handle is a row of the table in disguise: nothing to free, nothing to go stale, and a foreign pointer is
// recognised.
const param::Info* RowOf(ncclParamHandle_t handle) {
  const auto* const row = reinterpret_cast<const param::Info*>(handle);
  for (const param::Info& info : param::Table()) {
    if (&info == row) return row;
  }
  return nullptr;
}

// The row behind `handle`; null, and the error in *result, when it is none or `out` is missing.
const param::Info* Checked(const char* call, ncclParamHandle_t handle, const void* out, ncclResult_t* result) {
  if (out == nullptr) {
    *result = InvalidArgument("%s: argument out is NULL; pass where the value is to go", call);
    return nullptr;
  }
  const param::Info* const info = RowOf(handle);
  if (info == nullptr)
    *result = InvalidArgument("%s: argument h (%p) is not a parameter handle; get one with ncclParamBind", call,
                              static_cast<void*>(handle));
  return info;
}

template <class T>
ncclResult_t GetNumber(const char* call, ncclParamHandle_t handle, T* out) {
  ncclResult_t result = ncclSuccess;
  const param::Info* const info = Checked(call, handle, out, &result);
  if (info == nullptr) return result;
  const std::string text = param::GetShown(info->name);
  int64_t value = 0;
  if (!param::ParseInt(*info, text, &value))
    return InvalidArgument("%s: %s is \"%s\", not a whole number; use ncclParamGetStr", call, info->name, text.c_str());
  const bool fits = std::is_signed_v<T> ? value >= static_cast<int64_t>(std::numeric_limits<T>::min()) &&
                                              value <= static_cast<int64_t>(std::numeric_limits<T>::max())
                                        : value >= 0 && static_cast<uint64_t>(value) <= std::numeric_limits<T>::max();
  if (!fits)
    return InvalidArgument("%s: %s is %lld, which %zu bits do not hold; use ncclParamGetI64", call, info->name,
                           static_cast<long long>(value), sizeof(T) * 8);
  *out = static_cast<T>(value);
  return ncclSuccess;
}

// The bytes ncclParamGet hands out.
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

using axccl::api::Checked;
using axccl::api::GetNumber;
using axccl::api::InvalidArgument;
namespace param = axccl::param;

AXCCL_API ncclResult_t pncclParamBind(ncclParamHandle_t* out, const char* key) try {
  if (out == nullptr || key == nullptr)
    return InvalidArgument("ncclParamBind: argument %s is NULL; pass both", out == nullptr ? "out" : "key");
  const param::Info* const info = param::Find(key);
  if (info == nullptr)
    return InvalidArgument(
        "ncclParamBind: argument key is \"%s\", which is no parameter; see ncclParamGetAllParameterKeys", key);
  *out = reinterpret_cast<ncclParamHandle_t>(const_cast<param::Info*>(info));
  return ncclSuccess;
}
AXCCL_TWIN(ParamBind)

AXCCL_API ncclResult_t pncclParamGetI8(ncclParamHandle_t h, int8_t* out) try {
  return GetNumber("ncclParamGetI8", h, out);
}
AXCCL_TWIN(ParamGetI8)
AXCCL_API ncclResult_t pncclParamGetI16(ncclParamHandle_t h, int16_t* out) try {
  return GetNumber("ncclParamGetI16", h, out);
}
AXCCL_TWIN(ParamGetI16)
AXCCL_API ncclResult_t pncclParamGetI32(ncclParamHandle_t h, int32_t* out) try {
  return GetNumber("ncclParamGetI32", h, out);
}
AXCCL_TWIN(ParamGetI32)
AXCCL_API ncclResult_t pncclParamGetI64(ncclParamHandle_t h, int64_t* out) try {
  return GetNumber("ncclParamGetI64", h, out);
}
AXCCL_TWIN(ParamGetI64)
AXCCL_API ncclResult_t pncclParamGetU8(ncclParamHandle_t h, uint8_t* out) try {
  return GetNumber("ncclParamGetU8", h, out);
}
AXCCL_TWIN(ParamGetU8)
AXCCL_API ncclResult_t pncclParamGetU16(ncclParamHandle_t h, uint16_t* out) try {
  return GetNumber("ncclParamGetU16", h, out);
}
AXCCL_TWIN(ParamGetU16)
AXCCL_API ncclResult_t pncclParamGetU32(ncclParamHandle_t h, uint32_t* out) try {
  return GetNumber("ncclParamGetU32", h, out);
}
AXCCL_TWIN(ParamGetU32)
AXCCL_API ncclResult_t pncclParamGetU64(ncclParamHandle_t h, uint64_t* out) try {
  return GetNumber("ncclParamGetU64", h, out);
}
AXCCL_TWIN(ParamGetU64)

AXCCL_API ncclResult_t pncclParamGetStr(ncclParamHandle_t h, const char** out) try {
  ncclResult_t result = ncclSuccess;
  const param::Info* const info = Checked("ncclParamGetStr", h, out, &result);
  if (info == nullptr) return result;
  std::string& text = axccl::PerThread<axccl::api::Answers>::Get().by_handle;
  text = param::GetShown(info->name);
  *out = text.c_str();
  return ncclSuccess;
}
AXCCL_TWIN(ParamGetStr)

AXCCL_API ncclResult_t pncclParamGet(ncclParamHandle_t h, void* out, int maxLen, int* len) try {
  ncclResult_t result = ncclSuccess;
  const param::Info* const info = Checked("ncclParamGet", h, out, &result);
  if (info == nullptr) return result;
  if (len == nullptr) return InvalidArgument("ncclParamGet: argument len is NULL; pass where the size is to go");
  const std::string raw = axccl::api::RawValue(*info);
  *len = static_cast<int>(raw.size());
  if (maxLen < *len)
    return InvalidArgument("ncclParamGet: argument maxLen is %d, %s has %d bytes; pass a larger buffer", maxLen,
                           info->name, *len);
  memcpy(out, raw.data(), raw.size());
  return ncclSuccess;
}
AXCCL_TWIN(ParamGet)

AXCCL_API ncclResult_t pncclParamGetParameter(const char* key, const char** value, int* valueLen) try {
  if (key == nullptr || value == nullptr)
    return InvalidArgument("ncclParamGetParameter: argument %s is NULL; pass both", key == nullptr ? "key" : "value");
  const param::Info* const info = param::Find(key);
  if (info == nullptr)
    return InvalidArgument(
        "ncclParamGetParameter: argument key is \"%s\", which is no parameter; see "
        "ncclParamGetAllParameterKeys",
        key);
  std::string& text = axccl::PerThread<axccl::api::Answers>::Get().by_key;
  text = param::GetShown(info->name);
  *value = text.c_str();
  if (valueLen != nullptr) *valueLen = static_cast<int>(text.size());
  return ncclSuccess;
}
AXCCL_TWIN(ParamGetParameter)

AXCCL_API ncclResult_t pncclParamGetAllParameterKeys(const char*** table, int* tableLen) try {
  if (table == nullptr || tableLen == nullptr)
    return InvalidArgument("ncclParamGetAllParameterKeys: argument %s is NULL; pass both",
                           table == nullptr ? "table" : "tableLen");
  std::vector<const char*>& names = axccl::PerThread<axccl::api::Answers>::Get().names;
  names.clear();
  for (const param::Info& info : param::Table()) names.push_back(info.name);
  *table = names.data();
  *tableLen = static_cast<int>(names.size());
  return ncclSuccess;
}
AXCCL_TWIN(ParamGetAllParameterKeys)

AXCCL_API void pncclParamDumpAll(void) try {
  for (const param::Info& info : param::Table()) {
    param::Source source = param::Source::kDefault;
    (void)param::Get(info.name, &source);
    axccl::log::WriteAlways("%s=%s (%s, default \"%s\"): %s", info.name, param::GetShown(info.name).c_str(),
                            param::SourceName(source).c_str(), info.fallback, info.meaning);
  }
}
AXCCL_TWIN_ELSE(ParamDumpAll, )
