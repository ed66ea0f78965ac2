#include "tools/softgpu/cuda/fatbin.h"

#include <cstring>

#ifdef SOFTGPU_HAVE_ZSTD
#include <zstd.h>
#endif

namespace softgpu::cuda {
namespace {

constexpr uint32_t kWrapperMagic = 0x466243b1;
constexpr uint32_t kContainerMagic = 0xba55ed50;
constexpr uint32_t kElfMagic = 0x464c457f;
constexpr uint16_t kKindPtx = 1;
constexpr uint64_t kFlagLz4 = 0x2000, kFlagZstd = 0x8000;

// The argument of __cudaRegisterFatBinary.
struct Wrapper {
  uint32_t magic, version;
  const void* data;
  void* unused;
};

struct ContainerHeader {
  uint32_t magic;
  uint16_t version, header_bytes;
  uint64_t bytes;  // of the entries
};

struct EntryHeader {
  uint16_t kind, version;
  uint32_t header_bytes;
  uint64_t payload_bytes;     // padded
  uint32_t compressed_bytes;  // 0 when not compressed
  uint32_t unknown;
  uint16_t minor, major;
  uint32_t arch;
  uint32_t name_offset, name_bytes;
  uint64_t flags, zero;
  uint64_t raw_bytes;  // when unpacked
};
static_assert(sizeof(ContainerHeader) == 16 && sizeof(EntryHeader) == 64);

ImageResult Failure(ImageError error, std::string explanation) { return {error, std::move(explanation), {}}; }

bool Unpack(const EntryHeader& entry, const uint8_t* payload, std::string* text) {
  if ((entry.flags & kFlagZstd) != 0) return UnpackZstd(payload, entry.compressed_bytes, entry.raw_bytes, text);
  if ((entry.flags & kFlagLz4) != 0) return UnpackLz4(payload, entry.compressed_bytes, entry.raw_bytes, text);
  text->assign(reinterpret_cast<const char*>(payload), entry.payload_bytes);
  return true;
}

ImageResult ReadContainer(const uint8_t* data, int arch) {
  ContainerHeader header;
  std::memcpy(&header, data, sizeof header);
  const uint8_t* const end = data + header.header_bytes + header.bytes;
  std::string found;
  EntryHeader best = {};
  const uint8_t* best_payload = nullptr;
  for (const uint8_t* at = data + header.header_bytes; at + sizeof(EntryHeader) <= end;) {
    EntryHeader entry;
    std::memcpy(&entry, at, sizeof entry);
    const uint64_t left = static_cast<uint64_t>(end - at);
    if (entry.header_bytes < sizeof entry || entry.header_bytes > left ||
        entry.payload_bytes > left - entry.header_bytes)
      return Failure(ImageError::kInvalid, "an entry of the fat binary reaches beyond its end");
    const bool ptx = entry.kind == kKindPtx;
    found += (found.empty() ? "" : ", ") + std::string(ptx ? "compute_" : "sm_") + std::to_string(entry.arch);
    if (ptx && static_cast<int>(entry.arch) <= arch && (best_payload == nullptr || entry.arch >= best.arch)) {
      best = entry;
      best_payload = at + entry.header_bytes;
    }
    at += entry.header_bytes + entry.payload_bytes;
  }
  if (best_payload == nullptr) {
    return Failure(ImageError::kNoPtx, "the code holds no PTX for compute_" + std::to_string(arch) +
                                           " or older, only {" + found + "}; compile it with -gencode arch=compute_" +
                                           std::to_string(arch) + ",code=compute_" + std::to_string(arch));
  }
  if (best.compressed_bytes > best.payload_bytes)
    return Failure(ImageError::kInvalid, "an entry of the fat binary is longer than its payload");
  ImageResult result;
  result.image.arch = static_cast<int>(best.arch);
  if (!Unpack(best, best_payload, &result.image.text)) {
    return Failure(ImageError::kInvalid, (best.flags & kFlagZstd) != 0
                                             ? "PTX compressed with zstd cannot be unpacked (built without libzstd?)"
                                             : "PTX compressed with LZ4 cannot be unpacked");
  }
  // Padding and the end of the string.
  while (!result.image.text.empty() && result.image.text.back() == '\0') result.image.text.pop_back();
  return result;
}

}  // namespace

ImageResult ReadImage(const void* data, int arch) {
  uint32_t magic;
  std::memcpy(&magic, data, sizeof magic);
  if (magic == kWrapperMagic) {
    Wrapper wrapper;
    std::memcpy(&wrapper, data, sizeof wrapper);
    return ReadImage(wrapper.data, arch);
  }
  if (magic == kContainerMagic) return ReadContainer(static_cast<const uint8_t*>(data), arch);
  if (magic == kElfMagic)
    return Failure(ImageError::kNoPtx, "the code is a cubin, machine code of a GPU; only PTX can be run");
  ImageResult result;
  result.image.text = static_cast<const char*>(data);
  if (result.image.text.find(".version") == std::string::npos)
    return Failure(ImageError::kInvalid, "the code is neither a fat binary nor PTX: it has no .version directive");
  return result;
}

// The LZ4 block format: repeats of literals, then a match within the unpacked data.
bool UnpackLz4(const uint8_t* packed, size_t packed_bytes, size_t bytes, std::string* unpacked) {
  const uint8_t* at = packed;
  const uint8_t* const end = packed + packed_bytes;
  unpacked->clear();
  unpacked->reserve(bytes);
  const auto extend = [&](size_t* length) {
    if (*length != 15) return true;
    uint8_t more = 255;
    while (more == 255) {
      if (at == end) return false;
      more = *at++;
      *length += more;
    }
    return true;
  };
  while (at < end) {
    const uint8_t token = *at++;
    size_t literals = token >> 4;
    if (!extend(&literals) || literals > static_cast<size_t>(end - at)) return false;
    unpacked->append(reinterpret_cast<const char*>(at), literals);
    at += literals;
    if (at == end) break;
    if (end - at < 2) return false;
    const size_t distance = at[0] | at[1] << 8;
    at += 2;
    size_t match = token & 15;
    if (!extend(&match)) return false;
    match += 4;
    if (distance == 0 || distance > unpacked->size() || unpacked->size() + match > bytes) return false;
    // Byte by byte, because a match may overlap its own output.
    for (size_t i = 0; i < match; ++i) unpacked->push_back((*unpacked)[unpacked->size() - distance]);
  }
  return unpacked->size() == bytes;
}

bool UnpackZstd(const uint8_t* packed, size_t packed_bytes, size_t bytes, std::string* unpacked) {
#ifdef SOFTGPU_HAVE_ZSTD
  unpacked->resize(bytes);
  return ZSTD_decompress(unpacked->data(), bytes, packed, packed_bytes) == bytes;
#else
  (void)packed, (void)packed_bytes, (void)bytes, (void)unpacked;
  return false;
#endif
}

}  // namespace softgpu::cuda
