package dashboard

import "context"

func (d *Dashboard) comingPage(context.Context, *request) (page, error) {
	return page{name: "coming", title: "What comes", data: nil}, nil
}
