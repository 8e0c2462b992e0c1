package main

import (
	"context"
)

func dashboardPages() experiment { _ = context.Background; return experiment{name: "pages"} }
