// SPDX-License-Identifier: Apache-2.0
//
// What every element of the protos owes its reader.
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace fabricwise {
namespace {

namespace pb = google::protobuf;

// Collects what is wrong, by full name, in the order of the files.
class Critic {
 public:
  void Visit(const pb::FileDescriptor& file) {
    for (int i = 0; i < file.message_type_count(); ++i) {
      Visit(*file.message_type(i));
    }
    for (int i = 0; i < file.enum_type_count(); ++i) Visit(*file.enum_type(i));
    for (int i = 0; i < file.service_count(); ++i) {
      const pb::ServiceDescriptor& service = *file.service(i);
      CheckComment(service);
      for (int j = 0; j < service.method_count(); ++j) {
        const pb::MethodDescriptor& method = *service.method(j);
        const std::string comment = CheckComment(method);
        if (!absl::StrContains(comment, "Errors:")) {
          Complain(method, "lists no errors");
        }
        if (method.input_type()->name() !=
            absl::StrCat(method.name(), "Request")) {
          Complain(method, "takes a message not named after it");
        }
        if (method.output_type()->name() !=
            absl::StrCat(method.name(), "Response")) {
          Complain(method, "gives a message not named after it");
        }
      }
    }
  }

  const std::vector<std::string>& complaints() const { return complaints_; }
  int visited() const { return visited_; }

 private:
  void Visit(const pb::Descriptor& message) {
    CheckComment(message);
    for (int i = 0; i < message.field_count(); ++i) {
      CheckComment(*message.field(i));
    }
    for (int i = 0; i < message.real_oneof_decl_count(); ++i) {
      CheckComment(*message.oneof_decl(i));
    }
    for (int i = 0; i < message.nested_type_count(); ++i) {
      Visit(*message.nested_type(i));
    }
    for (int i = 0; i < message.enum_type_count(); ++i) {
      Visit(*message.enum_type(i));
    }
  }

  void Visit(const pb::EnumDescriptor& type) {
    CheckComment(type);
    std::string prefix;  // "NumberFormat" gives "NUMBER_FORMAT_"
    for (const char letter : type.name()) {
      if (absl::ascii_isupper(static_cast<unsigned char>(letter)) &&
          !prefix.empty()) {
        prefix += '_';
      }
      prefix += absl::ascii_toupper(static_cast<unsigned char>(letter));
    }
    prefix += '_';
    for (int i = 0; i < type.value_count(); ++i) {
      const pb::EnumValueDescriptor& value = *type.value(i);
      CheckComment(value);
      if (!absl::StartsWith(value.name(), prefix)) {
        Complain(value, absl::StrCat("does not begin with ", prefix));
      }
    }
    const pb::EnumValueDescriptor* zero = type.FindValueByNumber(0);
    if (zero == nullptr ||
        zero->name() != absl::StrCat(prefix, "UNSPECIFIED")) {
      Complain(type, absl::StrCat("has no ", prefix, "UNSPECIFIED = 0"));
    }
  }

  template <typename Element>
  std::string CheckComment(const Element& element) {
    ++visited_;
    pb::SourceLocation location;
    std::string comment;
    if (element.GetSourceLocation(&location)) {
      comment = location.leading_comments;
    }
    if (absl::StripAsciiWhitespace(comment).empty()) {
      Complain(element, "has no comment");
    }
    return comment;
  }

  template <typename Element>
  void Complain(const Element& element, absl::string_view what) {
    complaints_.push_back(absl::StrCat(element.full_name(), " ", what));
  }

  std::vector<std::string> complaints_;
  int visited_ = 0;
};

class ContractTest : public ::testing::Test {
 protected:
  // The build has protoc write the protos with their comments to one file.
  void SetUp() override {
    std::ifstream file(FABRICWISE_DESCRIPTORS, std::ios::binary);
    pb::FileDescriptorSet set;
    ASSERT_TRUE(set.ParseFromIstream(&file)) << FABRICWISE_DESCRIPTORS;
    for (const pb::FileDescriptorProto& proto : set.file()) {
      ASSERT_NE(pool_.BuildFile(proto), nullptr) << proto.name();
    }
  }

  Critic Criticize(const std::string& path) {
    Critic critic;
    const pb::FileDescriptor* file = pool_.FindFileByName(path);
    EXPECT_NE(file, nullptr) << path;
    if (file != nullptr) critic.Visit(*file);
    return critic;
  }

  pb::DescriptorPool pool_;
};

TEST_F(ContractTest, PublicElementsAreCommentedAndNamedByTheRules) {
  for (const char* path :
       {"fabricwise/v1/model.proto", "fabricwise/v1/advisor.proto",
        "fabricwise/v1/profiler.proto"}) {
    const Critic critic = Criticize(path);
    EXPECT_GT(critic.visited(), 50) << path;
    EXPECT_THAT(critic.complaints(), ::testing::IsEmpty()) << path;
  }
}

TEST_F(ContractTest, WorkerElementsAreCommentedAndNamedByTheRules) {
  EXPECT_THAT(Criticize("fabricwise/worker/v1/worker.proto").complaints(),
              ::testing::IsEmpty());
}

TEST_F(ContractTest, ABadContractIsFound) {
  EXPECT_THAT(Criticize("bad_contract.proto").complaints(),
              ::testing::UnorderedElementsAre(
                  "bad.Thing has no comment", "bad.Thing.size has no comment",
                  "bad.Colour has no COLOUR_UNSPECIFIED = 0",
                  "bad.RED does not begin with COLOUR_",
                  "bad.Service.Do lists no errors",
                  "bad.Service.Do takes a message not named after it",
                  "bad.Service.Do gives a message not named after it"));
}

}  // namespace
}  // namespace fabricwise
