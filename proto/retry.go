package skipperpb

// MethodConfig is the client retry policy of contract section 3, as the value
// of "methodConfig" in a gRPC service config: how often each method is tried
// while the controller is UNAVAILABLE.
const MethodConfig = `[
  {"name": [{"service": "skipper.ControllerService", "method": "GetInstance"}],
   "retryPolicy": {"maxAttempts": 3, "initialBackoff": "0.01s", "maxBackoff": "0.1s", "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"]}},
  {"name": [{"service": "skipper.ControllerService", "method": "Heartbeat"}],
   "retryPolicy": {"maxAttempts": 2, "initialBackoff": "0.01s", "maxBackoff": "0.05s", "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"]}},
  {"name": [{"service": "skipper.ControllerService", "method": "Scale"}],
   "retryPolicy": {"maxAttempts": 3, "initialBackoff": "0.05s", "maxBackoff": "0.5s", "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"]}},
  {"name": [{"service": "skipper.ControllerService", "method": "ReleaseInstance"}],
   "retryPolicy": {"maxAttempts": 2, "initialBackoff": "0.01s", "maxBackoff": "0.05s", "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"]}}
]`

// ServiceConfig is MethodConfig with round robin over all addresses that the
// name of the controllers resolves to.
const ServiceConfig = `{"loadBalancingConfig": [{"round_robin": {}}], "methodConfig": ` + MethodConfig + `}`
