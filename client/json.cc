// SPDX-License-Identifier: Apache-2.0
#include "client/json.h"

#include "absl/strings/str_cat.h"
#include "google/protobuf/util/json_util.h"

namespace fabricwise {

absl::StatusOr<std::string> ToJson(const google::protobuf::Message& message,
                                   JsonForm form) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  options.add_whitespace = form == JsonForm::kIndented;
  std::string json;
  auto status =
      google::protobuf::util::MessageToJsonString(message, &json, options);
  if (!status.ok()) {
    return absl::InternalError(
        absl::StrCat("cannot write ", message.GetTypeName(),
                     " as JSON: ", std::string(status.message())));
  }
  if (form == JsonForm::kOneLine) json += '\n';
  return json;
}

}  // namespace fabricwise
