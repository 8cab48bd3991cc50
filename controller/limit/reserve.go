package limit

import (
	"fmt"
	"math"
)

// Pool is what the reserve of a pool is decided from.
type Pool struct {
	// Free is how many pods can be claimed now; Size how many the pool is meant
	// to have, Free and those that are being made.
	Free, Size int
	// Held is how many pods of the pool the tenant has.
	Held int
}

// Reserve decides whether a tenant may take a pod of a pool of which the given
// share, from 0 to below 1, is kept from any one tenant. What is kept goes only
// to tenants that have no pod of the pool yet, one each: whoever has one leaves
// it. The error is a *Error.
func Reserve(share float64, p Pool) error {
	kept := int(math.Ceil(share*float64(max(p.Size, p.Free)) - rounding))
	if p.Held == 0 || p.Free > kept {
		return nil
	}
	return &Error{
		Limit: PoolReserve,
		Message: fmt.Sprintf("%d pods of the pool are free and %d of its %d are kept for tenants that have none: "+
			"scale the Deployment up, or lower --%s of the controller", p.Free, kept, max(p.Size, p.Free), PoolReserve),
	}
}

// rounding keeps a product such as 0.1 x 30 from counting as a little more.
const rounding = 1e-9
