// Reads NCCL's XML with expat, which is loaded at its first use.
#include <dlfcn.h>
#include <expat.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <memory>
#include <optional>

#include "src/base/dynamic_functions.h"
#include "src/topo/discover.h"
#include "src/topo/nccl_file.h"

namespace axccl::topo {
namespace {

// clang-format off
#define AXCCL_EXPAT_FUNCTIONS(X)                                                                                      \
  X(XML_ErrorString) X(XML_GetCurrentLineNumber) X(XML_GetErrorCode) X(XML_Parse) X(XML_ParserCreate)                 \
  X(XML_ParserFree) X(XML_SetElementHandler) X(XML_SetStartDoctypeDeclHandler) X(XML_SetUserData) X(XML_StopParser)
// clang-format on

struct Expat {
  AXCCL_DYNAMIC_FUNCTIONS(AXCCL_EXPAT_FUNCTIONS)
};

Status LoadExpat(Expat* expat) {
  void* const handle = dlopen("libexpat.so.1", RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr)
    return MakeStatus(Code::kInvalidUsage,
                      "this is XML, as NCCL writes it, and expat, which reads it, is not there: %s (Debian: "
                      "libexpat1); or use a file of 'axccl-info --topology --format file'",
                      dlerror());
  if (const char* const lacking = expat->Find(handle); lacking != nullptr)
    return MakeStatus(Code::kInvalidUsage, "libexpat.so.1 lacks %s", lacking);
  return Status();
}

Result<const Expat*> GetExpat() {
  static Expat* const expat = new Expat;
  static const Status* const status = new Status(LoadExpat(expat));
  if (!status->ok()) return *status;
  return expat;
}

constexpr size_t kMostNested = 64;  // elements; NCCL's files have one for each switch on the way to a device

// What NCCL reads inside of what.
struct Place {
  std::string_view parent, child;
};
constexpr Place kPlaces[] = {{"", "system"}, {"system", "cpu"}, {"cpu", "pci"}, {"cpu", "nic"},
                             {"pci", "pci"}, {"pci", "gpu"},    {"pci", "nic"}, {"pci", "pcilink"},
                             {"nic", "net"}, {"gpu", "nvlink"}, {"gpu", "c2c"}};

struct Net {
  std::string name;
  uint64_t megabits = 0;
};

// An element that is open. `pci` and what is in it also describe the device.
struct Element {
  std::string_view name;  // of kPlaces
  std::string address;
  uint32_t pci_class = 0, vendor = 0;
  uint64_t megabits = 0;  // of the PCI link
  bool gpu = false;
  std::vector<Net> nets;
};

using Attributes = const XML_Char**;

std::optional<std::string_view> Find(Attributes attributes, std::string_view key) {
  for (; *attributes != nullptr; attributes += 2) {
    if (key == attributes[0]) return attributes[1];
  }
  return std::nullopt;
}

template <class T>
bool ReadNumber(std::string_view text, int base, T least, T most, T* value) {
  if (base == 16 && text.starts_with("0x")) text.remove_prefix(2);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value, base);
  return error == std::errc() && end == text.data() + text.size() && *value >= least && *value <= most;
}

// Words of 32 bits in hexadecimal, the highest first, as the kernel writes cpumap.
bool ReadMask(std::string_view text, std::vector<int>* processors) {
  int first = 0;
  while (true) {
    const size_t comma = text.rfind(',');
    const std::string_view digits = comma == std::string_view::npos ? text : text.substr(comma + 1);
    uint32_t word = 0;
    if (digits.starts_with("0x") || !ReadNumber<uint32_t>(digits, 16, 0, ~0u, &word)) return false;
    for (int bit = 0; bit < 32; ++bit) {
      if ((word >> bit & 1) == 0) continue;
      if (first + bit > kMaxNumber) return false;
      processors->push_back(first + bit);
    }
    if (comma == std::string_view::npos) return true;
    text = text.substr(0, comma);
    if (first <= kMaxNumber) first += 32;
  }
}

// "0000:65:00.0", in lower case and with four digits of the domain where these do. Empty: not an address.
std::string ReadAddress(std::string_view text) {
  std::string address;
  for (const char c : text) address += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  while (address.size() > 12 && address[0] == '0') address.erase(0, 1);
  if (address.size() < 12 || address.size() > 16) return "";
  const std::string_view form = "hh:hh.h";
  const size_t colon = address.size() - form.size() - 1;
  for (size_t i = 0; i < address.size(); ++i) {
    const char expected = i < colon ? 'h' : i == colon ? ':' : form[i - colon - 1];
    const bool digit = (address[i] >= '0' && address[i] <= '9') || (address[i] >= 'a' && address[i] <= 'f');
    if (expected == 'h' ? !digit : address[i] != expected) return "";
  }
  return address;
}

// "16 GT/s", "16.0 GT/s PCIe", "Unknown" or nothing: Mbit/s of a lane after its encoding, 0 if not known.
bool ReadLane(std::string_view text, double* megabits) {
  *megabits = 0;
  if (text.empty() || text.starts_with("Unknown")) return true;
  double transfers = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), transfers);
  if (error != std::errc() || !(transfers > 0 && transfers <= 1024)) return false;
  const std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  *megabits = transfers * 1000 * (transfers < 8 ? 8.0 / 10 : 128.0 / 130);
  return unit.starts_with(" GT/s");
}

class Reader {
 public:
  explicit Reader(const Expat& expat) : expat_(expat), parser_(expat.XML_ParserCreate(nullptr), expat.XML_ParserFree) {}

  Result<NcclFile> Run(std::string_view text) {
    if (parser_ == nullptr) return MakeStatus(Code::kSystemError, "XML_ParserCreate: no memory");
    expat_.XML_SetUserData(parser_.get(), this);
    expat_.XML_SetElementHandler(parser_.get(), &Reader::OnBegin, &Reader::OnEnd);
    expat_.XML_SetStartDoctypeDeclHandler(parser_.get(), &Reader::OnDoctype);
    const auto result = expat_.XML_Parse(parser_.get(), text.data(), static_cast<int>(text.size()), XML_TRUE);
    if (status_.ok() && result != XML_STATUS_OK)
      Fail(std::string("this is not XML: ") + expat_.XML_ErrorString(expat_.XML_GetErrorCode(parser_.get())));
    if (!status_.ok()) return status_;
    return std::move(file_);
  }

 private:
  static void OnBegin(void* self, const XML_Char* name, Attributes attributes) {
    auto* const reader = static_cast<Reader*>(self);
    reader->Guard([&] { reader->Begin(name, attributes); });
  }
  static void OnEnd(void* self, const XML_Char*) {
    auto* const reader = static_cast<Reader*>(self);
    reader->Guard([&] { reader->End(); });
  }
  // NCCL's files have none, and entities are a way to make a small file large.
  static void OnDoctype(void* self, const XML_Char*, const XML_Char*, const XML_Char*, int) {
    auto* const reader = static_cast<Reader*>(self);
    reader->Guard([&] { reader->Fail("a document type is declared, which NCCL's files never do; remove it"); });
  }

  // No exception may pass through expat, which also calls back a few times after it was stopped.
  template <class Fn>
  void Guard(Fn fn) {
    if (!status_.ok()) return;
    const Status status = CatchAll("reading XML", [&] {
      fn();
      return Status();
    });
    if (status_.ok()) status_ = status;
    if (!status_.ok()) expat_.XML_StopParser(parser_.get(), XML_FALSE);
  }

  void Fail(const std::string& what) {
    status_ = MakeStatus(
        Code::kInvalidArgument,
        "NCCL's topology, line %lu: %s (correct it, or unset NCCL_TOPO_FILE to have the machine looked "
        "at instead)",
        static_cast<unsigned long>(expat_.XML_GetCurrentLineNumber(parser_.get())), PrintableName(what).c_str());
  }
  void FailAttribute(const char* key, std::string_view value, const char* expected) {
    Fail(std::string(open_.back().name) + " has " + key + "=\"" + std::string(value.substr(0, 64)) + "\", expected " +
         expected);
  }

  void Ignore(const std::string& what) {
    ++skipped_;
    // A file of nothing but unknown names is not worth more of them.
    if (file_.ignored.size() < 8) file_.ignored.insert(PrintableName(what.substr(0, 32)));
  }

  void Begin(const XML_Char* name, Attributes attributes) {
    if (skipped_ > 0) {
      ++skipped_;
      return;
    }
    const std::string_view parent = open_.empty() ? "" : open_.back().name;
    const auto* const place = std::find_if(std::begin(kPlaces), std::end(kPlaces), [&](const Place& known) {
      return known.parent == parent && known.child == name;
    });
    if (place == std::end(kPlaces) && parent.empty())
      return Fail("the root is '" + std::string(name).substr(0, 32) + "', expected 'system'");
    if (place == std::end(kPlaces)) return Ignore(name);
    if (open_.size() == kMostNested)
      return Fail("elements are nested deeper than " + std::to_string(kMostNested) + "; no machine is");
    open_.emplace_back().name = place->child;
    if (place->child == "system") BeginSystem(attributes);
    if (place->child == "cpu") BeginCpu(attributes);
    if (place->child == "pci") BeginPci(attributes);
    if (place->child == "gpu") Around("pci")->gpu = true;
    if (place->child == "net") BeginNet(attributes);
  }

  void End() {
    if (skipped_ > 0) {
      --skipped_;
      return;
    }
    const Element element = std::move(open_.back());
    open_.pop_back();
    if (element.name == "pci") EndPci(element);
    if (element.name == "nic" && Around("pci") == nullptr) AddNics(element, NicKind::kOther);
  }

  void BeginSystem(Attributes attributes) {
    const std::string_view version = Find(attributes, "version").value_or("");
    if (version != "1") FailAttribute("version", version, "1, the only version of NCCL's form");
  }

  void BeginCpu(Attributes attributes) {
    // Files of several machines that share NVLink list the CPUs of all of them.
    const std::string host(Find(attributes, "host_hash").value_or(""));
    if (!file_.cpus.empty() && host != host_) {
      open_.pop_back();
      return Ignore("cpu of another host");
    }
    host_ = host;
    NcclCpu& cpu = file_.cpus.emplace_back();
    const std::string_view node = Find(attributes, "numaid").value_or("");
    if (!ReadNumber(node, 10, kNowhere, kMaxNumber, &cpu.node))
      return FailAttribute("numaid", node, "the number of a NUMA node, or -1");
    const std::string_view affinity = Find(attributes, "affinity").value_or("");
    if (!affinity.empty() && !ReadMask(affinity, &cpu.processors))
      return FailAttribute("affinity", affinity, "a set of processors, as \"00000000,0000ffff\"");
    std::sort(cpu.processors.begin(), cpu.processors.end());
    for (const int processor : cpu.processors) {
      if (!processors_.insert(processor).second) file_.repeated.insert(processor);
    }
    for (const char* key : {"vendor", "familyid", "modelid"}) {
      const std::optional<std::string_view> value = Find(attributes, key);
      if (!value || value->empty()) continue;
      if (!cpu.name.empty()) cpu.name += std::string(" ") + std::string(key, std::string_view(key).find("id"));
      cpu.name += (cpu.name.empty() ? "" : " ") + PrintableName(value->substr(0, 64));
    }
  }

  void BeginPci(Attributes attributes) {
    Element& pci = open_.back();
    const std::string_view address = Find(attributes, "busid").value_or("");
    pci.address = ReadAddress(address);
    if (pci.address.empty())
      return FailAttribute("busid", address, "domain, bus, device and function, as \"0000:65:00.0\"");
    for (const auto& [key, value] : {std::pair("class", &pci.pci_class), std::pair("vendor", &pci.vendor)}) {
      const std::string_view text = Find(attributes, key).value_or("");
      if (!text.empty() && !ReadNumber<uint32_t>(text, 16, 0, 0xffffff, value))
        return FailAttribute(key, text, "a number of PCI in hexadecimal, as \"0x030200\"");
    }
    double lane = 0;
    uint32_t width = 0;
    const std::string_view speed = Find(attributes, "link_speed").value_or("");
    if (!ReadLane(speed, &lane)) return FailAttribute("link_speed", speed, "a speed of PCI, as \"16 GT/s\"");
    const std::string_view lanes = Find(attributes, "link_width").value_or("");
    if (!lanes.empty() && !ReadNumber<uint32_t>(lanes, 10, 0, 255, &width))
      return FailAttribute("link_width", lanes, "a number of lanes, as \"16\"");
    pci.megabits = static_cast<uint64_t>(lane * width);
  }

  void BeginNet(Attributes attributes) {
    Net net;
    net.name = PrintableName(Find(attributes, "name").value_or(""));
    std::replace(net.name.begin(), net.name.end(), ' ', '?');
    const std::string_view speed = Find(attributes, "speed").value_or("");
    int64_t megabits = 0;
    if (!speed.empty() && !ReadNumber<int64_t>(speed, 10, -1'000'000'000, 1'000'000'000, &megabits))
      return FailAttribute("speed", speed, "Mbit/s, as \"100000\"");
    net.megabits = static_cast<uint64_t>(std::max<int64_t>(megabits, 0));  // Linux has -1 where it does not know
    Element* const pci = Around("pci");
    (pci != nullptr ? pci : Around("nic"))->nets.push_back(std::move(net));
  }

  void EndPci(const Element& pci) {
    constexpr uint32_t kNetwork = 0x02, kEthernet = 0x0200, kInfiniband = 0x0207;
    const uint32_t kind = pci.pci_class >> 8;
    const bool gpu = pci.gpu || IsGpu(kind, pci.vendor);
    if (!gpu && pci.nets.empty() && kind >> 8 != kNetwork) return;  // a switch
    if (!devices_.insert(pci.address).second) return Fail("pci " + pci.address + " is there twice");
    if (gpu) file_.gpus.push_back({pci.address, file_.cpus.back().node, pci.megabits});
    if (gpu && pci.nets.empty()) return;
    AddNics(pci, kind == kEthernet ? NicKind::kEthernet : kind == kInfiniband ? NicKind::kInfiniband : NicKind::kOther);
  }

  void AddNics(const Element& device, NicKind kind) {
    const int node = file_.cpus.back().node;
    for (const Net& net : device.nets) {
      if (!net.name.empty() || !device.address.empty())
        file_.nics.push_back({net.name, device.address, kind, net.megabits, node});
    }
    if (device.nets.empty() && !device.address.empty()) file_.nics.push_back({"", device.address, kind, 0, node});
  }

  // The innermost open element of this name, or null.
  Element* Around(std::string_view name) {
    const auto found = std::find_if(open_.rbegin(), open_.rend(), [&](const Element& e) { return e.name == name; });
    return found == open_.rend() ? nullptr : &*found;
  }

  const Expat& expat_;
  const std::unique_ptr<XML_ParserStruct, decltype(Expat::XML_ParserFree)> parser_;
  NcclFile file_;
  Status status_;
  std::vector<Element> open_;
  size_t skipped_ = 0;  // elements that are open in one that is ignored, with it
  std::string host_;    // of the first CPU
  std::set<int> processors_;
  std::set<std::string> devices_;
};

}  // namespace

Result<NcclFile> ParseNccl(std::string_view text) {
  AXCCL_ASSIGN_OR_RETURN(const Expat* const expat, GetExpat());
  return Reader(*expat).Run(text);
}

}  // namespace axccl::topo
